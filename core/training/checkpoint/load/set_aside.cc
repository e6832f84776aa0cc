// set_aside.cc: damaged chunk files, moved out of the way.
//
// A saver may rename a new file to the chunk's name between a check and the move. So the file that
// was moved is checked again, at trash/DIGEST, where savers and readers look for missing chunks:
// an intact one goes back, and no moment exists in which neither name leads to it.
#include "training/checkpoint/load/set_aside.h"

#include "platform/io/buffers.h"

namespace ff::checkpoint {

Result<bool> chunk_file_is_intact(io::Disk& disk, const std::string& path,
                                  const simd::Digest& chunk) {
  FF_TRY(auto file, disk.open(path, {}));
  FF_TRY(const auto info, file->info());
  if (info.size > kChunkFileMax) return false;
  FF_TRY(auto memory, io::Buffers::make(2, kChunkFileMax));
  const auto got = file->read_at(memory.slot(0).first(info.size), 0);
  if (!got) return false;
  return open_chunk(memory.slot(0).first(*got), chunk, memory.slot(1), true).ok();
}

Result<bool> set_chunk_aside(io::Disk& disk, const Store& store, const simd::Digest& chunk) {
  const std::string path = store.chunk_path(chunk);
  const std::string trashed = store.trash_path(chunk);
  const auto is_gone = [](const Error& error) { return error.code == Errc::not_found; };
  const auto intact = chunk_file_is_intact(disk, path, chunk);
  if (!intact && !is_gone(intact.error())) return intact.error();
  if (intact && *intact) return false;
  // Not there: a verify may have ended between the two moves.
  auto moved = intact ? disk.rename(path, trashed) : Result<void>();
  if (!moved && !is_gone(moved.error())) return std::move(moved).error();
  const auto now_intact = chunk_file_is_intact(disk, trashed, chunk);
  if (!now_intact && is_gone(now_intact.error())) return false;  // missing, or restored by a saver
  if (!now_intact) return now_intact.error();
  moved = disk.rename(trashed, *now_intact ? path : store.set_aside_path(chunk));
  if (!moved && is_gone(moved.error())) return false;
  if (!moved) return std::move(moved).error();
  if (*now_intact) return false;
  FF_TRY(disk.sync_dir(store.trash_dir()));
  FF_TRY(disk.sync_dir(store.chunk_dir(std::to_integer<unsigned>(chunk.bytes[0]))));
  // Prune keeps it for its grace period from now on.
  FF_TRY(disk.set_mtime(store.set_aside_path(chunk), -1));
  return true;
}

}  // namespace ff::checkpoint

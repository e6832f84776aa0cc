// restore.cc: read jobs from index lines, one file after the other.
#include "training/checkpoint/load/restore.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/buffers.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "training/checkpoint/format/chunk_file.h"

namespace ff::checkpoint {
namespace {

constexpr size_t kUsersShown = 5;

uint64_t stored_in(const std::vector<ChunkExtent>& extents) {
  uint64_t sum = 0;
  for (const auto& extent : extents) sum += extent.chunk ? extent.length : 0;
  return sum;
}

// The chunks among `chunks` that the extents use.
std::set<simd::Digest> used_of(const std::vector<ChunkExtent>& extents,
                               const std::set<simd::Digest>& chunks) {
  std::set<simd::Digest> used;
  for (const auto& extent : extents) {
    if (extent.chunk && chunks.contains(*extent.chunk)) used.insert(*extent.chunk);
  }
  return used;
}

}  // namespace

std::string RestorePaths::of(const FileRecord& file) const {
  return rank_folders_ ? fmt::format("rank-{:05}/{}", file.rank, file.name) : file.name;
}

RestoreSource::RestoreSource(Context& context, std::string index_path, std::string staging,
                             RestoreSelection selection)
    : context_(&context),
      index_path_(std::move(index_path)),
      staging_(std::move(staging)),
      selection_(std::move(selection)),
      paths_(selection_.rank_folders) {}

Result<RestoreSource> RestoreSource::plan(Context& context, const std::string& index_path,
                                          std::string staging, RestoreSelection selection) {
  RestoreSource source(context, index_path, std::move(staging), std::move(selection));
  FF_TRY(source.open_reader());
  FF_TRY(source.scan());
  FF_TRY(source.open_reader());
  return source;
}

Result<void> RestoreSource::open_reader() {
  FF_TRY(reader_, IndexReader::open(context_->disk, index_path_));
  return {};
}

Result<void> RestoreSource::scan() {
  std::set<std::string> names;
  bool chosen = false;
  for (;;) {
    FF_TRY(context_->stop.check());
    FF_TRY(const auto record, reader_->next());
    if (!record) break;
    if (const auto* file = std::get_if<FileRecord>(&*record)) {
      chosen = !selection_.file || selection_.file(*file);
      if (!chosen) continue;
      if (!names.insert(file->name).second) paths_ = RestorePaths(true);
      count_.files++;
      count_.bytes += file->size;
      count_.stored_bytes += stored_in(file->extents);
    } else if (const auto* tensor = std::get_if<TensorRecord>(&*record); tensor && chosen) {
      count_.tensors++;
      count_.stored_bytes += stored_in(tensor->extents);
    }
  }
  return {};
}

Result<std::optional<ReadJob>> RestoreSource::next() {
  for (;;) {
    if (auto job = builder_.take()) return std::optional(std::move(job));
    if (ended_) return std::optional<ReadJob>();
    FF_TRY(const auto record, reader_->next());
    if (!record) {
      ended_ = true;
      FF_TRY(end_file());
    } else if (const auto* file = std::get_if<FileRecord>(&*record)) {
      FF_TRY(end_file());
      if (!selection_.file || selection_.file(*file)) FF_TRY(begin_file(*file));
    } else if (const auto* tensor = std::get_if<TensorRecord>(&*record); tensor && file_) {
      FF_TRY(add_tensor(*tensor));
    }
  }
}

Result<void> RestoreSource::begin_file(const FileRecord& file) {
  const std::string path = io::join(staging_, paths_.of(file));
  FF_TRY(make_parents(*context_, path));
  if (file.kind == EntryKind::directory) {
    auto made = context_->disk.make_dir(path, 0700);
    if (!made && made.error().code != Errc::exists) return std::move(made).error();
    directories_.push_back(file);
    return {};
  }
  if (file.kind == EntryKind::symlink) {
    links_.push_back(file);
    return {};
  }
  OutFile::Spec spec{.path = path,
                     .size = file.size,
                     .mode = file.mode,
                     .mtime_ns = file.mtime_ns,
                     // It is not known yet which of its tensors are zeros.
                     .sparse = count_.stored_bytes < count_.bytes};
  FF_TRY(file_, OutFile::create(*context_, std::move(spec)));
  file_->add_writer();
  file_size_ = file.size;
  data_begin_ = 0;
  for (const auto& extent : file.extents) data_begin_ += extent.length;
  builder_.add_all(file.extents, file_, 0);
  return {};
}

Result<void> RestoreSource::add_tensor(const TensorRecord& tensor) {
  const uint64_t at = data_begin_ + tensor.offset;
  if (at > file_size_ || tensor.size > file_size_ - at) {
    return fail(Errc::corrupt, "index {}: tensor '{}' ends beyond the end of its file", index_path_,
                printable(tensor.name));
  }
  builder_.add_all(tensor.extents, file_, at);
  return {};
}

Result<void> RestoreSource::end_file() {
  builder_.flush();
  if (!file_) return {};
  FF_TRY(file_->remove_writer());
  file_ = nullptr;
  return {};
}

// Links are made last, so that no file is written through one; directories get their modes and
// times when nothing below them changes any more.
Result<void> RestoreSource::finish() {
  for (const auto& link : links_) {
    const std::string path = io::join(staging_, paths_.of(link));
    FF_TRY(context_->disk.make_symlink(link.target, path));
    FF_TRY(context_->disk.set_mtime(path, link.mtime_ns));
  }
  for (auto dir = directories_.rbegin(); dir != directories_.rend(); ++dir) {
    const std::string path = io::join(staging_, paths_.of(*dir));
    FF_TRY(context_->disk.sync_dir(path));
    FF_TRY(context_->disk.set_mode(path, dir->mode));
    FF_TRY(context_->disk.set_mtime(path, dir->mtime_ns));
  }
  return {};
}

Result<void> make_parents(Context& context, const std::string& path) {
  const std::string above = io::parent(path);
  FF_TRY(const bool there, io::exists(context.disk, above));
  if (there) return {};
  return io::make_dirs(context.disk, above);
}

Result<void> check_space(Context& context, const std::string& dir, uint64_t bytes) {
  FF_TRY(const auto space, context.disk.space(dir));
  if (space.free >= bytes) return {};
  return Error{
      Errc::disk_full,
      fmt::format("{}: {} needed, {} free", dir, format_size(bytes), format_size(space.free)),
      "Free space there, or load into another file system."};
}

Result<std::string> read_extents(Context& context, const Store& store,
                                 const std::vector<ChunkExtent>& extents) {
  std::string out;
  FF_TRY(auto memory, io::Buffers::make(2, kChunkFileMax));
  for (const auto& extent : extents) {
    if (!extent.chunk) {
      out.append(extent.length, '\0');
      continue;
    }
    FF_TRY(auto file, open_chunk_file(context.disk, store, *extent.chunk, false));
    FF_TRY(const size_t got, file->read_at(memory.slot(0), 0));
    FF_TRY(const auto data,
           open_chunk(memory.slot(0).first(got), *extent.chunk, memory.slot(1), false));
    if (extent.offset + extent.length > data.size()) {
      return fail(Errc::corrupt, "the index refers to bytes beyond a chunk's end");
    }
    const auto part = data.subspan(extent.offset, extent.length);
    if (simd::crc32c(part) != extent.crc) {
      return fail(Errc::corrupt, "chunk {} does not match the index", extent.chunk->hex());
    }
    out += as_text(part);
  }
  return out;
}

std::map<simd::Digest, std::string> chunk_users(io::Disk& disk, const std::string& index_path,
                                                const std::set<simd::Digest>& chunks) {
  std::map<simd::Digest, std::string> users;
  std::map<simd::Digest, size_t> counts;
  auto reader = IndexReader::open(disk, index_path);
  if (!reader) return users;
  reader->skip_damaged();
  std::string file_name;
  for (;;) {
    const auto record = reader->next();
    if (!record || !*record) break;
    std::string user;
    std::set<simd::Digest> used;
    if (const auto* file = std::get_if<FileRecord>(&**record)) {
      file_name = printable(file->name);
      used = used_of(file->extents, chunks);
      user = fmt::format("file '{}'", file_name);
    } else if (const auto* tensor = std::get_if<TensorRecord>(&**record)) {
      used = used_of(tensor->extents, chunks);
      user = fmt::format("tensor '{}' of file '{}'", printable(tensor->name), file_name);
    }
    for (const auto& chunk : used) {
      if (++counts[chunk] > kUsersShown) continue;
      users[chunk] += (users[chunk].empty() ? "" : ", ") + user;
    }
  }
  for (const auto& [chunk, count] : counts) {
    if (count > kUsersShown) users[chunk] += fmt::format(" and {} more", count - kUsersShown);
  }
  return users;
}

std::string chunk_users(io::Disk& disk, const std::string& index_path, const simd::Digest& chunk) {
  return chunk_users(disk, index_path, std::set<simd::Digest>{chunk})[chunk];
}

Error damaged_chunk(io::Disk& disk, const Store& store, const StepName& name,
                    const simd::Digest& chunk, const std::string& reason) {
  return Error{Errc::corrupt,
               fmt::format("{}: chunk {}: {}; it has {}", name.text(), chunk.hex(), reason,
                           chunk_users(disk, store.index_path(name), chunk)),
               "'ff checkpoint salvage' restores everything else; an earlier step may be intact."};
}

}  // namespace ff::checkpoint

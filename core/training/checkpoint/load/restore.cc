// restore.cc: read jobs from index lines, one file after the other.
#include "training/checkpoint/load/restore.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

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

RestoreSource::RestoreSource(Context& context, std::string index_path, io::Disk& target,
                             std::string staging, RestoreSelection selection)
    : context_(&context),
      index_path_(std::move(index_path)),
      target_(&target),
      staging_(std::move(staging)),
      selection_(std::move(selection)),
      paths_(selection_.rank_folders),
      section_(index_path_) {}

Result<RestoreSource> RestoreSource::plan(Context& context, const std::string& index_path,
                                          io::Disk& target, std::string staging,
                                          RestoreSelection selection) {
  RestoreSource source(context, index_path, target, std::move(staging), std::move(selection));
  FF_TRY(source.open_reader());
  FF_TRY(source.scan());
  FF_TRY(source.open_reader());
  return source;
}

Result<void> RestoreSource::open_reader() {
  io::Disk& disk = selection_.index_disk != nullptr ? *selection_.index_disk : context_->disk;
  FF_TRY(reader_, IndexReader::open(disk, index_path_));
  return {};
}

// Pass one: everything that can be wrong with the index is found before a file is created.
Result<void> RestoreSource::scan() {
  std::set<std::pair<std::string, uint32_t>> names;
  bool chosen = false;
  for (;;) {
    FF_TRY(context_->stop.check());
    FF_TRY(const auto record, reader_->next());
    if (const auto* tensor = record ? std::get_if<TensorRecord>(&*record) : nullptr) {
      if (!chosen) continue;
      FF_TRY(section_.add(*tensor));
      count_.tensors++;
      count_.stored_bytes += stored_in(tensor->extents);
      continue;
    }
    if (chosen) FF_TRY(section_.end());
    if (!record) return {};
    const auto& file = std::get<FileRecord>(*record);
    chosen = !selection_.file || selection_.file(file);
    if (!chosen) continue;
    const auto [at, fresh] = names.emplace(file.name, file.rank);
    if (!fresh) return twice(file);
    const auto same_name = [&](auto other) { return other->first == file.name; };
    if ((at != names.begin() && same_name(std::prev(at))) ||
        (std::next(at) != names.end() && same_name(std::next(at)))) {
      paths_ = RestorePaths(true);
    }
    section_.begin(file);
    FF_TRY(count_file(file));
  }
}

Error RestoreSource::twice(const FileRecord& file) const {
  return fail(Errc::corrupt, "index {}: rank {} has two files named '{}'", index_path_, file.rank,
              printable(file.name));
}

Result<void> RestoreSource::count_file(const FileRecord& file) {
  count_.files++;
  count_.bytes += file.size;
  count_.stored_bytes += stored_in(file.extents);
  if (count_.bytes <= kIndexNumberMax) return {};
  return fail(Errc::corrupt, "index {}: its files have more than 2^62 bytes", index_path_);
}

Result<std::optional<ReadJob>> RestoreSource::next() {
  for (;;) {
    if (auto job = builder_.take()) return std::optional(std::move(job));
    if (ended_) return std::optional<ReadJob>();
    FF_TRY(auto record, reader_->next());
    if (!record) {
      ended_ = true;
      FF_TRY(end_file());
    } else if (auto* file = std::get_if<FileRecord>(&*record)) {
      FF_TRY(end_file());
      if (!selection_.file || selection_.file(*file)) FF_TRY(begin_file(std::move(*file)));
    } else if (auto* tensor = std::get_if<TensorRecord>(&*record); tensor && file_) {
      FF_TRY(add_tensor(std::move(*tensor)));
    }
  }
}

Result<void> RestoreSource::begin_file(FileRecord file) {
  const std::string path = io::join(staging_, paths_.of(file));
  FF_TRY(make_parents(*target_, path));
  if (file.kind == EntryKind::directory) {
    auto made = target_->make_dir(path, 0700);
    if (!made && made.error().code != Errc::exists) return std::move(made).error();
    directories_.push_back(std::move(file));
    return {};
  }
  if (file.kind == EntryKind::symlink) {
    links_.push_back(std::move(file));
    return {};
  }
  OutFile::Spec spec{.path = path,
                     .size = file.size,
                     .mode = file.mode,
                     .mtime_ns = file.mtime_ns,
                     // It is not known yet which of its tensors are zeros.
                     .sparse = count_.stored_bytes < count_.bytes};
  FF_TRY(file_, OutFile::create(*target_, std::move(spec)));
  file_->add_writer();
  section_.begin(file);
  builder_.add_all(std::move(file.extents), file_, 0);
  return {};
}

// The rules are checked again: another program may have changed the index since pass one.
Result<void> RestoreSource::add_tensor(TensorRecord tensor) {
  FF_TRY(const uint64_t at, section_.add(tensor));
  builder_.add_all(std::move(tensor.extents), file_, at);
  return {};
}

Result<void> RestoreSource::end_file() {
  builder_.flush();
  if (!file_) return {};
  FF_TRY(section_.end());
  FF_TRY(file_->remove_writer());
  file_ = nullptr;
  return {};
}

// Links are made last, so that no file is written through one; directories get their modes and
// times when nothing below them changes any more.
Result<void> RestoreSource::finish() {
  for (const auto& link : links_) {
    const std::string path = io::join(staging_, paths_.of(link));
    FF_TRY(target_->make_symlink(link.target, path));
    FF_TRY(target_->set_mtime(path, link.mtime_ns));
  }
  for (auto dir = directories_.rbegin(); dir != directories_.rend(); ++dir) {
    const std::string path = io::join(staging_, paths_.of(*dir));
    FF_TRY(target_->sync_dir(path));
    FF_TRY(target_->set_mode(path, dir->mode));
    FF_TRY(target_->set_mtime(path, dir->mtime_ns));
  }
  return {};
}

Result<void> make_parents(io::Disk& disk, const std::string& path) {
  const std::string above = io::parent(path);
  FF_TRY(const bool there, io::exists(disk, above));
  if (there) return {};
  return io::make_dirs(disk, above);
}

Result<void> check_space(io::Disk& disk, const std::string& dir, uint64_t bytes) {
  FF_TRY(const auto space, disk.space(dir));
  if (space.free >= bytes) return {};
  return Error{
      Errc::disk_full,
      fmt::format("{}: {} needed, {} free", dir, format_size(bytes), format_size(space.free)),
      "Free space there, or load into another file system."};
}

uint64_t add_or_max(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

Result<std::string> read_header(Context& context, const Store& store,
                                const std::vector<ChunkExtent>& extents) {
  uint64_t size = 0;
  for (const auto& extent : extents) size = add_or_max(size, extent.length);
  if (size < kSafetensorsLengthBytes || size > kSafetensorsLengthBytes + kSafetensorsHeaderMax) {
    return fail(Errc::corrupt, "{} bytes are no header of a safetensors file", size);
  }
  std::string out;
  FF_TRY(auto memory, io::Buffers::make(2, kChunkFileMax));
  for (const auto& extent : extents) {
    FF_TRY(context.stop.check());
    // JSON has none. A few bytes of an index must not become as many as a header may have.
    if (!extent.chunk) return fail(Errc::corrupt, "zeros are no header of a safetensors file");
    const auto damaged = [&](std::string_view reason) {
      return fail(Errc::corrupt, "chunk {}: {}", extent.chunk->hex(), reason);
    };
    auto file = open_chunk_file(context.disk, store, *extent.chunk, false);
    if (!file && file.error().code == Errc::corrupt) return damaged(file.error().message);
    if (!file) return std::move(file).error();
    FF_TRY(const size_t got, (*file)->read_at(memory.slot(0), 0));
    const auto data = open_chunk(memory.slot(0).first(got), *extent.chunk, memory.slot(1), false);
    if (!data) return damaged(data.error().message);
    if (extent.offset + extent.length > data->size()) {
      return damaged("the index refers to bytes beyond its end");
    }
    const auto part = data->subspan(extent.offset, extent.length);
    if (simd::crc32c(part) != extent.crc) {
      return damaged("its bytes do not match the CRC32C in the index");
    }
    out += as_text(part);
  }
  return out;
}

Result<std::optional<SafetensorsMetadata>> read_metadata(Context& context, const Store& store,
                                                         const std::vector<ChunkExtent>& extents) {
  FF_TRY(const auto header, read_header(context, store, extents));
  return safetensors_metadata(std::string_view(header).substr(kSafetensorsLengthBytes));
}

Result<void> MetadataBudget::take(const SafetensorsMetadata& pairs, const std::string& index_path) {
  uint64_t bytes = 0;
  for (const auto& pair : pairs) bytes += sizeof pair + pair.first.size() + pair.second.size();
  if (bytes > left_) {
    return fail(Errc::corrupt, "index {}: the metadata of its safetensors files is too large",
                index_path);
  }
  left_ -= bytes;
  return {};
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

// sources.cc: opening, closing and reading the files of an import.
#include "training/checkpoint/import/sources.h"

#include <libdeflate.h>

#include <utility>

namespace ff::checkpoint {
namespace {

constexpr size_t kOpenMax = 64;

}  // namespace

uint32_t zip_crc32(uint32_t before, ByteView bytes) {
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

Result<size_t> ImportSources::add(const std::string& path) {
  files_.push_back({.path = path});
  auto file = open(files_.size() - 1);
  if (file) {
    FF_TRY(files_.back().info, (*file)->info());
    if (files_.back().info.kind == io::FileKind::regular) return files_.size() - 1;
  }
  if (!file) return std::move(file).error();
  return fail(Errc::failed, "{}: not a regular file", path);
}

Result<size_t> ImportSources::add(std::shared_ptr<io::File> file) {
  FF_TRY(const auto info, file->info());
  files_.push_back({.path = file->path(), .info = info, .file = std::move(file)});
  return files_.size() - 1;
}

Result<std::shared_ptr<io::File>> ImportSources::open(size_t source) {
  const std::lock_guard lock(mutex_);
  SourceFile& file = files_[source];
  if (file.file != nullptr) return file.file;
  FF_TRY(file.file, disk_.open(file.path, {}));
  open_.push_back(source);
  if (open_.size() > kOpenMax) {
    files_[open_.front()].file = nullptr;  // closed when its last reader has ended
    open_.pop_front();
  }
  return file.file;
}

Result<void> ImportSources::read(size_t source, ByteSpan into, uint64_t offset) {
  FF_TRY(const auto file, open(source));
  FF_TRY(const size_t got, file->read_at(into, offset));
  const io::FileInfo& before = files_[source].info;
  FF_TRY(const io::FileInfo now, file->info());
  if (now.size != before.size || now.mtime_ns != before.mtime_ns || now.inode != before.inode) {
    return Error{Errc::failed,
                 fmt::format("{}: the file changed while ff imported it", file->path()),
                 "Import it again when no program writes to it."};
  }
  if (got == into.size()) return {};
  return fail(Errc::corrupt, "{}: it ends before byte {}", file->path(), offset + into.size());
}

}  // namespace ff::checkpoint

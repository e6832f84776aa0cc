// atomic_file.cc: a unique temporary name, and the rename or link at the end.
#include "platform/io/atomic_file.h"

#include "platform/io/files.h"

namespace ff::io {

namespace {

Error taken(const std::string& path) {
  return Error{Errc::refused, fmt::format("{}: exists already", path),
               "Name another file, or replace it with --force."};
}

}  // namespace

Result<void> AtomicFile::check(Disk& disk, const std::string& path, bool replace) {
  const auto info = disk.info(path);
  if (!info) {
    if (info.error().code == Errc::not_found) return {};
    return info.error();
  }
  if (info->kind == FileKind::directory) {
    return Error{Errc::refused, fmt::format("{}: is a directory", path), "Name the file to write."};
  }
  return replace ? Result<void>() : taken(path);
}

AtomicFile::AtomicFile(Disk& disk, Rng& rng, std::string path)
    : disk_(disk),
      path_(std::move(path)),
      temp_path_(fmt::format("{}.ff-unfinished-{}", path_, rng.hex_id())) {}

AtomicFile::~AtomicFile() {
  if (!committed_) (void)disk_.remove(temp_path_);
}

Result<void> AtomicFile::commit(bool replace) {
  if (replace) {
    FF_TRY(disk_.rename(temp_path_, path_));
  } else {
    auto linked = disk_.link(temp_path_, path_);
    if (!linked && linked.error().code == Errc::exists) return taken(path_);
    FF_TRY(std::move(linked));
    (void)disk_.remove(temp_path_);
  }
  committed_ = true;
  return disk_.sync_dir(parent(path_));
}

}  // namespace ff::io

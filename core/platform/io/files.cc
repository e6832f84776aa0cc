// files.cc: implements files.h on the Disk seam only, so that tests on the simulated disk cover the
// code that runs on a real machine.
#include "platform/io/files.h"

#include <algorithm>
#include <memory>

namespace ff::io {
namespace {

// The size of the first read. It holds a small file; the following reads double the size.
constexpr size_t kFirstRead = 64 * kKiB;

// "a/b//" -> "a/b"; "/" stays.
std::string_view without_trailing_slashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

Result<void> write_new(Disk& disk, const std::string& path, std::string_view content) {
  FF_TRY(auto file,
         disk.open(
             path,
             {.access = AccessMode::write, .create = true, .truncate = true, .no_follow = true}));
  FF_TRY(file->write_at(as_bytes(content), 0));
  return file->sync();
}

// Whether `path` is a directory, following symbolic links. False if it does not exist.
Result<bool> leads_to_dir(Disk& disk, const std::string& path) {
  auto info = disk.info(join(path, "."));
  if (info) return info->kind == FileKind::directory;
  if (info.error().code == Errc::not_found) return false;
  return std::move(info).error();
}

Result<void> missing_is_success(Result<void> removed) {
  if (!removed && removed.error().code == Errc::not_found) return {};
  return removed;
}

}  // namespace

std::string join(std::string_view dir, std::string_view name) {
  std::string path(dir);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string parent(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(without_trailing_slashes(path.substr(0, std::max<size_t>(slash, 1))));
}

std::string base_name(std::string_view path) {
  path = without_trailing_slashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || path.size() == 1) return std::string(path);
  return std::string(path.substr(slash + 1));
}

Result<std::string> read_file(Disk& disk, const std::string& path, uint64_t limit) {
  FF_TRY(auto file, disk.open(path, {.access = AccessMode::read}));
  std::string content;
  size_t filled = 0;
  // Reads to the end of the file, not to its size, because it may grow meanwhile. One byte above
  // the limit proves that it is too long.
  while (filled <= limit) {
    const uint64_t piece = std::max<uint64_t>(kFirstRead, filled);
    content.resize(std::min<uint64_t>(filled + piece, limit + 1));
    const ByteSpan into(reinterpret_cast<std::byte*>(content.data()) + filled,
                        content.size() - filled);
    FF_TRY(const size_t got, file->read_at(into, filled));
    filled += got;
    if (got < into.size()) {
      content.resize(filled);
      return content;
    }
  }
  return fail(Errc::failed, "{}: longer than {} bytes", path, limit);
}

Result<void> replace_file(Disk& disk, const std::string& path, std::string_view content,
                          std::string_view suffix) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, suffix);
  auto written = write_new(disk, temporary, content);
  if (written) written = disk.rename(temporary, path);
  if (!written) {
    // Report the first error; a leftover temporary file is harmless.
    (void)disk.remove(temporary);
    return written;
  }
  return disk.sync_dir(parent(path));
}

Result<void> make_dirs(Disk& disk, const std::string& path, uint32_t mode) {
  FF_TRY(const bool present, leads_to_dir(disk, path));
  if (present) return {};
  auto made = disk.make_dir(path, mode);
  const std::string above = parent(path);
  if (!made && made.error().code == Errc::not_found && above != path) {
    FF_TRY(make_dirs(disk, above, mode));
    made = disk.make_dir(path, mode);
  }
  if (!made) {
    if (made.error().code != Errc::exists) return made;
    // Another process created it meanwhile (and syncs it), or the name is not a directory.
    FF_TRY(const bool is_dir, leads_to_dir(disk, path));
    if (!is_dir) return made;
    return {};
  }
  return disk.sync_dir(above);
}

Result<void> remove_tree(Disk& disk, const std::string& path) {
  auto info = disk.info(path);
  if (!info) {
    if (info.error().code == Errc::not_found) return {};
    return std::move(info).error();
  }
  if (info->kind != FileKind::directory) return missing_is_success(disk.remove(path));
  auto entries = disk.list(path);
  if (!entries) {
    if (entries.error().code == Errc::not_found) return {};
    return std::move(entries).error();
  }
  for (const DirEntry& entry : *entries) FF_TRY(remove_tree(disk, join(path, entry.name)));
  return missing_is_success(disk.remove_dir(path));
}

Result<bool> exists(Disk& disk, const std::string& path) {
  auto info = disk.info(path);
  if (info) return true;
  if (info.error().code == Errc::not_found) return false;
  return std::move(info).error();
}

Result<std::unique_ptr<File>> lock_file(Disk& disk, const std::string& path, uint32_t mode) {
  FF_TRY(auto file,
         disk.open(path, {.access = AccessMode::read_write, .create = true, .mode = mode}));
  FF_TRY(const bool locked, file->try_lock());
  if (!locked) file.reset();
  return file;
}

}  // namespace ff::io

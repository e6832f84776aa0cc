// system_directory.cc: listing, syncing and dating entries of an open directory.
#include "platform/io/system_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>

#include "platform/base/clock.h"
#include "platform/io/system_file.h"

namespace ff::io {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};
using DirHandle = std::unique_ptr<DIR, DirCloser>;

// The kind of an entry; calls fstatat() if the directory does not store it. False if the entry was
// removed meanwhile.
Result<bool> entry_kind(DIR* dir, const dirent& entry, const std::string& path, FileKind& kind) {
  switch (entry.d_type) {
    case DT_REG: kind = FileKind::regular; return true;
    case DT_DIR: kind = FileKind::directory; return true;
    case DT_LNK: kind = FileKind::symlink; return true;
    case DT_UNKNOWN: break;
    default: kind = FileKind::other; return true;
  }
  struct stat status;
  if (fstatat(dirfd(dir), entry.d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return errno_error(errno, path + "/" + entry.d_name);
  }
  kind = file_info(status).kind;
  return true;
}

}  // namespace

Result<std::vector<DirEntry>> list_open_dir(Fd fd, const std::string& path) {
  const DirHandle dir(fdopendir(fd.get()));
  if (!dir) return errno_error(errno, path);
  (void)fd.release();  // closedir() closes it
  std::vector<DirEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    FileKind kind = FileKind::other;
    FF_TRY(const bool present, entry_kind(dir.get(), *entry, path, kind));
    if (present) entries.push_back({std::string(name), kind});
  }
  if (errno != 0) return errno_error(errno, path);
  std::sort(entries.begin(), entries.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

Result<void> sync_open_dir(int dir, const std::string& path) {
  int err = 0;
  while (fsync(dir) != 0) {
    err = errno;
    if (err != EINTR) break;
    err = 0;
  }
  // EINVAL: this file system keeps directories durable itself (SMB, some FUSE).
  if (err != 0 && err != EINVAL) return errno_error(err, path);
  return {};
}

Result<void> outcome(int returned, const std::string& path) {
  if (returned != 0) return errno_error(errno, path);
  return {};
}

std::string both(const std::string& from, const std::string& to) { return from + " -> " + to; }

Result<FileInfo> info_at(int dir, const std::string& name, const std::string& path) {
  struct stat status;
  if (fstatat(dir, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno_error(errno, path);
  }
  return file_info(status);
}

Result<std::string> read_symlink_at(int dir, const std::string& name, const std::string& path) {
  char target[PATH_MAX];  // the longest target Linux stores is one byte less
  const ssize_t length = readlinkat(dir, name.c_str(), target, sizeof target);
  if (length < 0) return errno_error(errno, path);
  return std::string(target, static_cast<size_t>(length));
}

Result<void> link_at(NameAt from, NameAt to, const std::string& path) {
  if (linkat(from.dir, from.name.c_str(), to.dir, to.name.c_str(), 0) == 0) return {};
  const int err = errno;
  // FAT returns EPERM for "no hard links"; other file systems return it for a directory, which
  // stays an error.
  struct stat status;
  if ((err == EPERM || err == EOPNOTSUPP) &&
      fstatat(from.dir, from.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(status.st_mode)) {
    if (renameat2(from.dir, from.name.c_str(), to.dir, to.name.c_str(), RENAME_NOREPLACE) == 0) {
      return {};
    }
    if (errno == EEXIST) return errno_error(EEXIST, path);
  }
  return errno_error(err, path);
}

Result<void> set_mtime_at(int dir, const std::string& name, int64_t mtime_ns,
                          const std::string& path) {
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  if (mtime_ns == -1) {
    times[1].tv_nsec = UTIME_NOW;
  } else {
    // Before 1970 the seconds are rounded down, as tv_nsec is never negative.
    times[1].tv_sec = mtime_ns / kSecond - (mtime_ns % kSecond < 0 ? 1 : 0);
    times[1].tv_nsec = mtime_ns - times[1].tv_sec * kSecond;
  }
  return outcome(utimensat(dir, name.c_str(), times, AT_SYMLINK_NOFOLLOW), path);
}

}  // namespace ff::io

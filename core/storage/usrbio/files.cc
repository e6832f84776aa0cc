// files.cc: the table of registered files, and calls on files that need no ring.
#include "storage/usrbio/files.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "storage/usrbio/hf3fs_usrbio.h"
#include "storage/usrbio/ioctls.h"

namespace ff::usrbio {

namespace {

using FileRef = std::shared_ptr<const RegisteredFile>;

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<int, FileRef> files;  // by both numbers of each
};
// It stays until the process ends: threads may still be in it when main() returns.
Table& table() {
  static Table& all = *new Table;
  return all;
}

FileRef find(int fd) {
  const auto found = table().files.find(fd < 0 ? -fd : fd);
  return found == table().files.end() ? nullptr : found->second;
}

}  // namespace

RegisteredFile::~RegisteredFile() {
  if (own >= 0) ::close(own);
}

FileRef registered(int fd) {
  const std::shared_lock lock(table().mutex);
  return find(fd);
}

}  // namespace ff::usrbio

using namespace ff::usrbio;

int hf3fs_reg_fd(int fd, uint64_t) {
  struct stat info = {};
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fstat(fd, &info) != 0) return errno;
  if (!S_ISREG(info.st_mode) || !hf3fs_is_hf3fs(fd)) return EBADF;
  auto file = std::make_shared<RegisteredFile>();
  const std::unique_lock lock(table().mutex);
  if (find(fd) != nullptr) return EINVAL;
  // Not 0, which is no negative number.
  file->own = ::fcntl(fd, F_DUPFD_CLOEXEC, 1);
  if (file->own < 0) return errno;
  file->given = fd;
  file->device = info.st_dev;
  file->inode = info.st_ino;
  const int mode = flags & O_ACCMODE;
  file->reads = mode != O_WRONLY;
  file->writes = mode != O_RDONLY;
  table().files[file->given] = file;
  table().files[file->own] = file;
  return -file->own;
}

void hf3fs_dereg_fd(int fd) {
  FileRef last;  // closed after the lock
  const std::unique_lock lock(table().mutex);
  last = find(fd);
  if (last == nullptr) return;
  table().files.erase(last->given);
  table().files.erase(last->own);
}

int hf3fs_hardlink(const char* target, const char* link_name) {
  return ::link(target, link_name) == 0 ? 0 : errno;
}

int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags) {
  if (n < 0 || n > kPunchMax || flags != 0) return EINVAL;
  if (!hf3fs_is_hf3fs(fd)) return EBADF;
  const auto order = std::make_unique<PunchOrder>();
  order->n = n;
  std::copy_n(start, n, order->start);
  std::copy_n(end, n, order->end);
  return ::ioctl(fd, kPunch, order.get()) == 0 ? 0 : errno;
}

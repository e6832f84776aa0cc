// registered_files.cc: the table of registered files, and functions that need no ring.
#include "storage/usrbio/registered_files.h"

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
  std::unordered_map<int, FileRef> files;  // by both descriptors
};
// Never destroyed: other threads may use it while main() returns.
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
  if (dup_fd >= 0) ::close(dup_fd);
}

FileRef find_registered(int fd) {
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
  // Not descriptor 0, which has no negative.
  file->dup_fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 1);
  if (file->dup_fd < 0) return errno;
  file->fd = fd;
  file->device = info.st_dev;
  file->inode = info.st_ino;
  const int mode = flags & O_ACCMODE;
  file->reads = mode != O_WRONLY;
  file->writes = mode != O_RDONLY;
  table().files[file->fd] = file;
  table().files[file->dup_fd] = file;
  return -file->dup_fd;
}

void hf3fs_dereg_fd(int fd) {
  FileRef last;  // closed after the lock is released
  const std::unique_lock lock(table().mutex);
  last = find(fd);
  if (last == nullptr) return;
  table().files.erase(last->fd);
  table().files.erase(last->dup_fd);
}

int hf3fs_hardlink(const char* target, const char* link_name) {
  return ::link(target, link_name) == 0 ? 0 : errno;
}

int hf3fs_punchhole(int fd, int n, const size_t* start, const size_t* end, size_t flags) {
  if (n < 0 || n > kPunchHoleMax || flags != 0) return EINVAL;
  if (!hf3fs_is_hf3fs(fd)) return EBADF;
  const auto args = std::make_unique<PunchHoleArgs>();
  args->n = n;
  std::copy_n(start, n, args->start);
  std::copy_n(end, n, args->end);
  return ::ioctl(fd, kPunchHole, args.get()) == 0 ? 0 : errno;
}

// system_disk.cc: namespace operations through POSIX (system_disk.h). Each is one system call, and
// its error names the path. Files are in system_file.cc, queues in uring_queue.cc and
// thread_queue.cc.
#include "platform/io/system_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "platform/io/beneath_disk.h"
#include "platform/io/system_directory.h"
#include "platform/io/system_file.h"
#include "platform/io/thread_queue.h"
#include "platform/io/uring_queue.h"

namespace ff::io {
namespace {

int open_dir(const std::string& path) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

Result<std::unique_ptr<File>> SystemDisk::open(const std::string& path, OpenOptions options) {
  return SystemFile::open(path, options);
}

std::unique_ptr<IoQueue> SystemDisk::make_queue(QueueOptions options) {
  return make_system_queue(options);
}

std::string_view SystemDisk::queue_kind() const {
  return make_uring_queue({.depth = 1}) ? "io_uring" : "threads";
}

Result<FileInfo> SystemDisk::info(const std::string& path) { return info_at(AT_FDCWD, path, path); }

Result<std::vector<DirEntry>> SystemDisk::list(const std::string& path) {
  const int fd = open_dir(path);
  if (fd < 0) return errno_error(errno, path);
  return list_open_dir(Fd(fd), path);
}

Result<void> SystemDisk::make_dir(const std::string& path, uint32_t mode) {
  return outcome(mkdir(path.c_str(), mode), path);
}

Result<void> SystemDisk::remove(const std::string& path) {
  return outcome(unlink(path.c_str()), path);
}

Result<void> SystemDisk::remove_dir(const std::string& path) {
  return outcome(rmdir(path.c_str()), path);
}

Result<void> SystemDisk::rename(const std::string& from, const std::string& to) {
  return outcome(::rename(from.c_str(), to.c_str()), both(from, to));
}

Result<void> SystemDisk::link(const std::string& from, const std::string& to) {
  return link_at({AT_FDCWD, from}, {AT_FDCWD, to}, both(from, to));
}

Result<void> SystemDisk::make_symlink(const std::string& target, const std::string& path) {
  return outcome(symlink(target.c_str(), path.c_str()), path);
}

Result<std::string> SystemDisk::read_symlink(const std::string& path) {
  return read_symlink_at(AT_FDCWD, path, path);
}

Result<void> SystemDisk::set_mode(const std::string& path, uint32_t mode) {
  return outcome(chmod(path.c_str(), mode), path);
}

Result<void> SystemDisk::set_mtime(const std::string& path, int64_t mtime_ns) {
  return set_mtime_at(AT_FDCWD, path, mtime_ns, path);
}

Result<void> SystemDisk::sync_dir(const std::string& dir) {
  const Fd fd(open_dir(dir));
  if (fd.get() < 0) return errno_error(errno, dir);
  return sync_open_dir(fd.get(), dir);
}

Result<Space> SystemDisk::space(const std::string& path) {
  struct statvfs status;
  if (statvfs(path.c_str(), &status) != 0) return errno_error(errno, path);
  return Space{.total = uint64_t{status.f_blocks} * status.f_frsize,
               .free = uint64_t{status.f_bavail} * status.f_frsize};
}

Result<std::unique_ptr<Disk>> SystemDisk::beneath(const std::string& dir) {
  FF_TRY(auto disk, BeneathDisk::open(dir));
  return std::unique_ptr<Disk>(std::move(disk));
}

}  // namespace ff::io

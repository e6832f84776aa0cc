// system_file.cc: opening, positional I/O, sparse maps and locks of one file (system_file.h).
// Descriptors are always O_CLOEXEC. Calls block only for the device of the file.
#include "platform/io/system_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/clock.h"
#include "platform/io/alignment.h"

namespace ff::io {
namespace {

// Repeats `call` while signals interrupt it (EINTR); returns its result.
template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int open_flags(const OpenOptions& options) {
  // O_NONBLOCK so that a FIFO does not wait for its other end; grant_direct() clears it.
  int flags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  switch (options.access) {
    case AccessMode::read: flags |= O_RDONLY; break;
    case AccessMode::write: flags |= O_WRONLY; break;
    case AccessMode::read_write: flags |= O_RDWR; break;
  }
  if (options.create) flags |= O_CREAT;
  if (options.create && options.exclusive) flags |= O_EXCL;
  if (options.truncate) flags |= O_TRUNC;
  if (options.no_follow) flags |= O_NOFOLLOW;
  return flags;
}

// Sets the final status flags. O_DIRECT is set here and not in open(2): an open() that creates the
// file and then fails because of O_DIRECT leaves the file behind, and O_EXCL could not be retried.
bool grant_direct(int fd, bool wanted) {
  if (wanted && fcntl(fd, F_SETFL, O_DIRECT) == 0) return true;
  fcntl(fd, F_SETFL, 0);
  return false;
}

}  // namespace

FileInfo file_info(const struct stat& status) {
  FileInfo info;
  switch (status.st_mode & S_IFMT) {
    case S_IFREG: info.kind = FileKind::regular; break;
    case S_IFDIR: info.kind = FileKind::directory; break;
    case S_IFLNK: info.kind = FileKind::symlink; break;
    default: info.kind = FileKind::other; break;
  }
  info.mode = status.st_mode & 07777;
  info.uid = status.st_uid;
  info.gid = status.st_gid;
  info.size = static_cast<uint64_t>(status.st_size);
  info.allocated = static_cast<uint64_t>(status.st_blocks) * 512;  // POSIX: units of 512 bytes
  info.mtime_ns = status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec;
  info.device = status.st_dev;
  info.inode = status.st_ino;
  return info;
}

Result<std::unique_ptr<File>> SystemFile::open(const std::string& path,
                                               const OpenOptions& options) {
  return open_at(AT_FDCWD, path, path, options);
}

Result<std::unique_ptr<File>> SystemFile::open_at(int dir, const std::string& name,
                                                  const std::string& path,
                                                  const OpenOptions& options) {
  const int flags = open_flags(options);
  const int fd = retry([&] { return ::openat(dir, name.c_str(), flags, options.mode); });
  if (fd < 0) return errno_error(errno, path);
  struct stat status;
  if (fstat(fd, &status) != 0) {
    const int err = errno;
    ::close(fd);
    return errno_error(err, path);
  }
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    ::close(fd);
    if (S_ISDIR(status.st_mode)) return errno_error(EISDIR, path);
    return fail(Errc::failed, "{}: not a regular file", path);
  }
  const bool direct = grant_direct(fd, options.direct);
  return std::unique_ptr<File>(new SystemFile(path, fd, direct));
}

SystemFile::SystemFile(std::string path, int fd, bool direct)
    : File(std::move(path)), fd_(fd), direct_(direct) {}

SystemFile::~SystemFile() {
  if (cached_fd_ >= 0) ::close(cached_fd_);
  ::close(fd_);
}

Result<size_t> SystemFile::read_at(ByteSpan into, uint64_t offset) {
  check_direct(*this, into, offset);
  size_t done = 0;
  while (done < into.size()) {
    const size_t want = std::min(into.size() - done, kMaxTransfer);
    const ssize_t got = retry(
        [&] { return pread(fd_, into.data() + done, want, static_cast<off_t>(offset + done)); });
    if (got < 0) return error(errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
    // A direct read ends unaligned only at the end of the file; continuing there would be EINVAL.
    if (direct_ && done % kDirectAlign != 0) break;
  }
  return done;
}

Result<void> SystemFile::write_at(ByteView from, uint64_t offset) {
  check_direct(*this, from, offset);
  size_t done = 0;
  while (done < from.size()) {
    const size_t want = std::min(from.size() - done, kMaxTransfer);
    const ssize_t put = retry(
        [&] { return pwrite(fd_, from.data() + done, want, static_cast<off_t>(offset + done)); });
    if (put < 0) return error(errno);
    if (put == 0) return error(EIO);
    done += static_cast<size_t>(put);
  }
  return {};
}

int SystemFile::cached_fd() {
  if (!direct_) return fd_;
  std::call_once(cached_once_, [this] {
    const int fd = retry([&] { return ::open(path().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
    if (fd < 0) return;
    struct stat mine;
    struct stat found;
    if (fstat(fd_, &mine) == 0 && fstat(fd, &found) == 0 && mine.st_dev == found.st_dev &&
        mine.st_ino == found.st_ino) {
      cached_fd_ = fd;
    } else {
      ::close(fd);
    }
  });
  return cached_fd_;
}

Result<bool> SystemFile::read_cached(ByteSpan into, uint64_t offset) {
  const int fd = cached_fd();
  if (fd < 0) return false;
  const iovec whole{into.data(), into.size()};
  const ssize_t got =
      retry([&] { return preadv2(fd, &whole, 1, static_cast<off_t>(offset), RWF_NOWAIT); });
  if (got >= 0) return static_cast<size_t>(got) == into.size();
  if (errno == EAGAIN || errno == EOPNOTSUPP || errno == ENOSYS) return false;
  return error(errno);
}

Result<void> SystemFile::sync() {
  // fdatasync also writes the size if the data needs it; it skips only timestamps.
  if (retry([&] { return fdatasync(fd_); }) != 0) return error(errno);
  return {};
}

Result<void> SystemFile::truncate(uint64_t size) {
  if (retry([&] { return ftruncate(fd_, static_cast<off_t>(size)); }) != 0) return error(errno);
  return {};
}

Result<void> SystemFile::reserve(uint64_t offset, uint64_t length) {
  if (length == 0) return {};
  const auto begin = static_cast<off_t>(offset);
  const auto count = static_cast<off_t>(length);
  if (retry([&] { return fallocate(fd_, FALLOC_FL_KEEP_SIZE, begin, count); }) == 0) return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS) return {};
  return error(errno);
}

Result<void> SystemFile::punch_hole(uint64_t offset, uint64_t length) {
  if (length == 0) return {};
  constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const auto begin = static_cast<off_t>(offset);
  const auto count = static_cast<off_t>(length);
  if (retry([&] { return fallocate(fd_, kMode, begin, count); }) == 0) return {};
  if (errno == EOPNOTSUPP || errno == ENOSYS) {
    return fail(Errc::unsupported, "{}: the file system cannot punch holes", path());
  }
  return error(errno);
}

Result<DataRange> SystemFile::next_data(uint64_t offset) {
  FF_TRY(const FileInfo now, info());
  const DataRange none{now.size, now.size};
  if (offset >= now.size) return none;
  const off_t begin = lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
  if (begin < 0) {
    if (errno == ENXIO) return none;
    if (errno == EINVAL || errno == EOPNOTSUPP) return DataRange{offset, now.size};
    return error(errno);
  }
  const off_t end = lseek(fd_, begin, SEEK_HOLE);
  if (end < 0) {
    if (errno == ENXIO) return none;  // truncated meanwhile
    return error(errno);
  }
  return DataRange{static_cast<uint64_t>(begin), static_cast<uint64_t>(end)};
}

Result<FileInfo> SystemFile::info() {
  struct stat status;
  if (fstat(fd_, &status) != 0) return error(errno);
  return file_info(status);
}

Result<bool> SystemFile::try_lock() {
  if (retry([&] { return flock(fd_, LOCK_EX | LOCK_NB); }) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  return error(errno);
}

}  // namespace ff::io

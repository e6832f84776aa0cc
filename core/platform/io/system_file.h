// SystemFile: an open file of the machine. It uses positional POSIX I/O, retries short transfers
// and interrupted calls, and its errors name the path.
//
// A direct file bypasses the page cache. read_cached() still reads the page cache, through a second
// descriptor that its first call opens: so a reader can get cached data from memory and the rest
// from the device through one File.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// The largest transfer per system call. The kernel limits a call to 2 GiB minus a page, and direct
// I/O needs a multiple of kDirectAlign.
constexpr size_t kMaxTransfer = kGiB;

class SystemFile final : public File {
 public:
  // Opens regular files and block devices; any other kind (directory, FIFO) is an error, and
  // opening a FIFO does not block. `direct` falls back to the page cache if O_DIRECT is
  // unsupported.
  static Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options);
  // The same for `name` in an open directory (openat(2)). `path`: its path, for messages.
  static Result<std::unique_ptr<File>> open_at(int dir, const std::string& name,
                                               const std::string& path, const OpenOptions& options);
  ~SystemFile() override;
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override;
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t offset, uint64_t length) override;
  Result<void> punch_hole(uint64_t offset, uint64_t length) override;
  Result<DataRange> next_data(uint64_t offset) override;
  Result<FileInfo> info() override;
  Result<bool> try_lock() override;
  bool direct() const override { return direct_; }

  int fd() const { return fd_; }
  Error error(int err) const { return errno_error(err, path()); }

 private:
  SystemFile(std::string path, int fd, bool direct);
  // The descriptor for read_cached(); -1 if the path no longer refers to this file.
  int cached_fd();

  const int fd_;
  const bool direct_;
  std::once_flag cached_once_;
  int cached_fd_ = -1;
};

// FileInfo of a struct stat.
FileInfo file_info(const struct stat& status);

}  // namespace ff::io

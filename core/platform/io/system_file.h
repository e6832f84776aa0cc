// One open file of the machine: positional POSIX I/O that finishes what it starts (short
// transfers and signals are retried) and reports errors with the path.
//
// A direct file reads and writes past the page cache. read_cached asks the page cache all the same,
// through a second descriptor opened at the first such call: a reader can take what is in memory
// from there and the rest from the device, from one File.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <mutex>
#include <string>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// The largest transfer given to the kernel in one call; it stops at 2 GiB less a page anyway, and
// direct I/O needs a whole multiple of kDirectAlign.
constexpr size_t kMaxTransfer = kGiB;

class SystemFile final : public File {
 public:
  // Regular files and block devices; anything else (a directory, a FIFO) is an error, without
  // waiting for a writer. `direct` falls back to the page cache where O_DIRECT is not offered.
  static Result<std::unique_ptr<File>> open(const std::string& path, const OpenOptions& options);
  ~SystemFile() override;
  SystemFile(const SystemFile&) = delete;
  SystemFile& operator=(const SystemFile&) = delete;

  Result<size_t> read_at(ByteSpan into, uint64_t offset) override;
  Result<void> write_at(ByteView from, uint64_t offset) override;
  Result<bool> read_cached(ByteSpan into, uint64_t offset) override;
  Result<void> sync() override;
  Result<void> truncate(uint64_t size) override;
  Result<void> reserve(uint64_t offset, uint64_t length) override;
  Result<void> punch(uint64_t offset, uint64_t length) override;
  Result<DataRange> next_data(uint64_t offset) override;
  Result<FileInfo> info() override;
  Result<bool> try_lock() override;
  bool direct() const override { return direct_; }

  int fd() const { return fd_; }
  Error error(int err) const { return errno_error(err, path()); }

 private:
  SystemFile(std::string path, int fd, bool direct);
  // The descriptor for read_cached, or -1 when the path no longer leads to this file.
  int cached_fd();

  const int fd_;
  const bool direct_;
  std::once_flag cached_once_;
  int cached_fd_ = -1;
};

// FileInfo of a struct stat.
FileInfo file_info(const struct stat& status);

}  // namespace ff::io

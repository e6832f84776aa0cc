// The machine's file systems as a Disk (disk.h). Bulk I/O goes through io_uring where the kernel
// allows it and through a few threads where it does not (containers often forbid io_uring); the
// choice is made for each queue at run time and changes nothing but speed.
//
// On a direct file every transfer, of the queues and of File, must be aligned (alignment.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "platform/io/disk.h"

namespace ff::io {

class SystemDisk final : public Disk {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) override;
  std::unique_ptr<IoQueue> make_queue(QueueOptions options) override;

  Result<FileInfo> info(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& dir) override;
  Result<void> make_dir(const std::string& path, uint32_t mode) override;
  Result<void> remove(const std::string& path) override;
  Result<void> remove_dir(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  // Where the file system has no hard links (FAT, some FUSE and cloud mounts), `to` is published
  // by an exclusive rename instead: the same promise for `to`, but `from` is gone afterwards. A
  // caller that removes `from` next must take Errc::not_found for success.
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  Result<void> sync_dir(const std::string& dir) override;
  Result<Space> space(const std::string& path) override;

  // What make_queue gives on this machine: "io_uring" or "threads".
  std::string_view queue_kind() const;
};

}  // namespace ff::io

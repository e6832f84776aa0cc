// SystemDisk: the file systems of the machine as a Disk (disk.h). Bulk I/O uses io_uring if the
// kernel allows it, else a thread pool (containers often forbid io_uring). make_queue() chooses at
// run time; the choice affects only speed.
//
// On a direct file all transfers, of queues and of File, must be aligned (alignment.h).
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
  // On file systems without hard links (FAT, some FUSE and cloud mounts) it uses an exclusive
  // rename instead: the same guarantee for `to`, but `from` no longer exists afterwards. A caller
  // that removes `from` next must treat Errc::not_found as success.
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  Result<void> sync_dir(const std::string& dir) override;
  Result<Space> space(const std::string& path) override;
  Result<std::unique_ptr<Disk>> beneath(const std::string& dir) override;  // a BeneathDisk

  // The kind of queue that make_queue() returns on this machine: "io_uring" or "threads".
  std::string_view queue_kind() const;
};

}  // namespace ff::io

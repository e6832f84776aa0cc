// SimBeneath: Disk::beneath() of a simulated disk. It looks at each directory of a path before an
// operation, which is safe only because a simulation has one thread; on a real machine
// io::BeneathDisk leaves that to the kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "platform/io/disk.h"

namespace ff::sim {

class SimBeneath final : public io::Disk {
 public:
  // Errc::not_found, or ENOTDIR: `dir` is no directory. `disk` outlives the result.
  static Result<std::unique_ptr<io::Disk>> open(io::Disk& disk, std::string dir);

  Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions options) override;
  std::unique_ptr<io::IoQueue> make_queue(io::QueueOptions options) override;
  Result<io::FileInfo> info(const std::string& path) override;
  Result<std::vector<io::DirEntry>> list(const std::string& dir) override;
  Result<void> make_dir(const std::string& path, uint32_t mode) override;
  Result<void> remove(const std::string& path) override;
  Result<void> remove_dir(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  Result<void> sync_dir(const std::string& dir) override;
  Result<io::Space> space(const std::string& path) override;
  Result<std::unique_ptr<io::Disk>> beneath(const std::string& dir) override;

 private:
  SimBeneath(io::Disk& disk, std::string root) : disk_(disk), root_(std::move(root)) {}
  // Whether an operation may use the path: it is below the root, and no component but the last one
  // is a symbolic link; with `whole`, nor is that.
  Result<void> check(const std::string& path, bool whole = false) const;

  io::Disk& disk_;
  const std::string root_;
};

}  // namespace ff::sim

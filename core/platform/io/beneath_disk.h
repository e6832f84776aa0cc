// BeneathDisk: one directory of this machine and what is below it, as a Disk that cannot leave it.
// It follows no symbolic link below the directory, whoever puts one there while an operation runs:
// each operation resolves its path from the open directory (openat2(2) with RESOLVE_BENEATH and
// RESOLVE_NO_SYMLINKS) and refuses a path with a link (ELOOP). For programs that write below a
// directory in which others may write, too.
//
// Paths are those of the machine: the directory's own path as given, or one below it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/fd.h"
#include "platform/io/disk.h"

namespace ff::io {

class BeneathDisk final : public Disk {
 public:
  // Follows symbolic links in `root` itself.
  static Result<std::unique_ptr<BeneathDisk>> open(std::string root);

  // Errc::usage, as from all operations: the path is not below the directory.
  Result<std::unique_ptr<File>> open(const std::string& path, OpenOptions options) override;
  std::unique_ptr<IoQueue> make_queue(QueueOptions options) override;

  Result<FileInfo> info(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& dir) override;
  Result<void> make_dir(const std::string& path, uint32_t mode) override;
  Result<void> remove(const std::string& path) override;
  Result<void> remove_dir(const std::string& path) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> link(const std::string& from, const std::string& to) override;
  Result<void> make_symlink(const std::string& target, const std::string& path) override;
  Result<std::string> read_symlink(const std::string& path) override;
  Result<void> set_mode(const std::string& path, uint32_t mode) override;
  Result<void> set_mtime(const std::string& path, int64_t mtime_ns) override;
  // Not part of Disk: simulated files have no owners. nullopt leaves an id unchanged.
  Result<void> set_owner(const std::string& path, std::optional<uint32_t> uid,
                         std::optional<uint32_t> gid);
  Result<void> sync_dir(const std::string& dir) override;
  Result<Space> space(const std::string& path) override;
  // Unlike open(), it follows no symbolic link in `dir` either.
  Result<std::unique_ptr<Disk>> beneath(const std::string& dir) override;

 private:
  // An open directory, and a name in it: "." for the directory itself.
  struct Place {
    Fd dir;
    std::string name;
  };
  BeneathDisk(std::string root, Fd fd) : root_(std::move(root)), fd_(std::move(fd)) {}
  Result<Place> place(const std::string& path) const;
  Result<Fd> open_dir(const std::string& path) const;

  const std::string root_;
  const Fd fd_;
};

}  // namespace ff::io

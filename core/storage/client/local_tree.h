// A tree of local files as one side of a copy. It uses direct I/O where the file system supports
// it, and the page cache for data that is cached. Metadata operations block, as those of Disk do.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "platform/io/async.h"
#include "platform/io/beneath_disk.h"
#include "storage/client/file_tree.h"

namespace ff::client {

class LocalTree final : public FileTree {
 public:
  // Both outlive it and all files that it opens. `unit`: the size of reads and writes, a multiple
  // of a page.
  LocalTree(io::Disk& disk, io::AsyncQueue& queue, uint64_t unit)
      : disk_(disk), queue_(queue), unit_(unit) {}

  Task<Result<std::optional<FileStat>>> stat(std::string path, bool follow) override;
  Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) override;
  Task<Result<void>> stay_below(std::string dir) override;
  Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, FileStat stat) override;
  Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                 bool keep) override;
  Task<Result<void>> make_dir(std::string path, uint32_t mode) override;
  Task<Result<void>> make_symlink(std::string target, std::string path) override;
  Task<Result<void>> remove(std::string path) override;
  Task<Result<void>> rename(std::string from, std::string to) override;
  Task<Result<void>> set(std::string path, Attributes attributes) override;
  Task<Result<void>> sync_names() override;
  // Stored in the file PATH.note.
  Task<Result<std::string>> resume_point(std::string path) override;
  Task<Result<void>> set_resume_point(std::string path, std::string words) override;
  std::string display_path(std::string_view path) const override { return std::string(path); }

 private:
  // Where changes go.
  io::Disk& target() { return below_ != nullptr ? static_cast<io::Disk&>(*below_) : disk_; }

  io::Disk& disk_;
  std::unique_ptr<io::BeneathDisk> below_;
  io::AsyncQueue& queue_;
  const uint64_t unit_;
  std::set<std::string> unsynced_dirs_;  // directories with unsynced names
};

}  // namespace ff::client

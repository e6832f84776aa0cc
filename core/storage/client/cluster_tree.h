// A tree of files in a cluster as one side of a copy. It resolves each directory once and then
// works by inode, like a program that keeps the directory open.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "storage/client/below_directory.h"
#include "storage/client/file_system.h"
#include "storage/client/file_tree.h"

namespace ff::client {

class ClusterTree final : public FileTree {
 public:
  // `files` outlives it and all files that it opens.
  ClusterTree(FileSystem& files, meta::Caller caller)
      : files_(files), caller_(std::move(caller)), error_cursor_(files.cursor()) {}

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
  Task<Result<void>> sync_names() override { return files_.sync_metadata(error_cursor_); }
  // Stored in the extended attribute user.ff.part.
  Task<Result<std::string>> resume_point(std::string path) override;
  Task<Result<void>> set_resume_point(std::string path, std::string words) override;
  std::string display_path(std::string_view path) const override;

 private:
  Task<Result<meta::InodeRef>> dir_of(std::string path);
  // The same for a path that is changed.
  Task<Result<meta::InodeRef>> target_dir_of(std::string path);
  Task<Result<meta::InodeView>> entry(std::string path);

  FileSystem& files_;
  const meta::Caller caller_;
  ErrorSeq::Cursor error_cursor_;
  std::map<std::string, meta::InodeRef> dirs_;
  std::shared_ptr<BelowDirectory> below_;  // of stay_below()
};

}  // namespace ff::client

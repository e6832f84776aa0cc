// A cluster's files as an end of a copy. The directories it works in are looked up once, and are
// then worked in by their inodes, as a program does that has them open.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "storage/client/file_system.h"
#include "storage/client/tree.h"

namespace ff::client {

class ClusterTree final : public Tree {
 public:
  // `files` outlives it, and all that it opens.
  ClusterTree(FileSystem& files, meta::Caller caller)
      : files_(files), caller_(std::move(caller)), told_(files.cursor()) {}

  Task<Result<std::optional<Node>>> look(std::string path, bool follow) override;
  Task<Result<std::vector<Entry>>> list(std::string dir, std::string after) override;
  Task<Result<std::unique_ptr<OpenFile>>> open(std::string path, Node node) override;
  Task<Result<std::unique_ptr<OpenFile>>> create(std::string path, uint32_t mode,
                                                 bool keep) override;
  Task<Result<void>> make_dir(std::string path, uint32_t mode) override;
  Task<Result<void>> make_link(std::string target, std::string path) override;
  Task<Result<void>> remove(std::string path) override;
  Task<Result<void>> rename(std::string from, std::string to) override;
  Task<Result<void>> set(std::string path, Attributes attributes) override;
  Task<Result<void>> settle() override { return files_.sync_names(told_); }
  // In the attribute user.ff.part.
  Task<Result<std::string>> note(std::string path) override;
  Task<Result<void>> set_note(std::string path, std::string words) override;
  std::string shown(std::string_view path) const override;

 private:
  Task<Result<meta::Ref>> dir_of(std::string path);
  Task<Result<meta::Seen>> entry(std::string path);

  FileSystem& files_;
  const meta::Caller caller_;
  ErrorSeq::Cursor told_;
  std::map<std::string, meta::Ref> dirs_;
};

}  // namespace ff::client

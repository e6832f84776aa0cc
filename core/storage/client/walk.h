// Resolves paths, lists directories page by page, and walks trees in a cluster. Memory: one page
// per level, however large the tree is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/meta/meta_client.h"

namespace ff::client {

// Resolves a path. Errors name the path.
Task<Result<meta::InodeView>> resolve_path(meta::MetaClient& metadata, meta::Caller caller,
                                           std::string path, bool follow);

// A directory and a name in it, which may not exist.
struct ResolvedName {
  meta::InodeView dir;
  std::string name;
  std::optional<meta::InodeView> found;
};
// Errc::usage: the path names no directory entry, as the root and paths ending in "." or ".." do.
Task<Result<ResolvedName>> resolve_name(meta::MetaClient& metadata, meta::Caller caller,
                                        std::string path);

// Joins PATH and NAME without doubling slashes.
std::string join_path(std::string_view path, std::string_view name);

// Lists one directory in byte order. Owned by one task.
class DirLister {
 public:
  DirLister(meta::MetaClient& metadata, meta::Caller caller, meta::InodeRef dir, bool with_inodes);

  // None: no more entries.
  Task<Result<std::optional<meta::MetaClient::DirEntry>>> next();

 private:
  meta::MetaClient& metadata_;
  const meta::Caller caller_;
  const meta::InodeRef dir_;
  const bool with_inodes_;
  meta::MetaClient::DirPage page_;
  size_t at_ = 0;
  std::string after_;
};

// Walks everything below a directory, each directory before its contents, like fts(3). Owned by one
// task.
class TreeWalker {
 public:
  struct Step {
    enum class Kind : uint8_t {
      entry,
      directory_end,  // all entries of a directory were returned
      failed,         // a directory could not be read (completely)
    };
    Kind kind = Kind::entry;
    std::string path;
    size_t depth = 0;  // 1 for entries of the top directory
    // of an entry; none: the directory does not permit it
    std::optional<meta::InodeView> view = {};
    meta::InodeType inode_kind = meta::InodeType::file;  // of an entry
    std::optional<Error> error = {};                     // failed
  };
  TreeWalker(meta::MetaClient& metadata, meta::Caller caller, std::string path,
             meta::InodeView top);

  // None: the walk is complete.
  Task<Result<std::optional<Step>>> next();

 private:
  struct Level {
    std::string path;
    meta::InodeView dir;
    DirLister listing;
  };
  void enter(std::string path, meta::InodeView dir);

  meta::MetaClient& metadata_;
  const meta::Caller caller_;
  std::vector<Level> levels_;
  std::optional<Step> entering_;  // the directory to descend into next
};

}  // namespace ff::client

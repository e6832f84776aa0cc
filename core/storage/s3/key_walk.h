// The keys of a bucket in the order of S3, which is that of their bytes. A folder walk is in
// another order: the folder "a" comes before the file "a-b", but its keys "a/..." come behind it,
// since '-' is below '/'. So a folder waits here until no name before its keys can follow.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/meta/meta_client.h"
#include "storage/s3/object_store.h"

namespace ff::s3 {

struct WalkedKey {
  std::string key;
  meta::InodeView view;
  bool marker = false;  // of a folder marker
};

// Owned by one task. What the caller may not read is left out.
class KeyWalk {
 public:
  // Keys that begin with `prefix` and are larger than `after`.
  struct Range {
    std::string prefix = {};
    std::string after = {};
  };
  // The store outlives it.
  KeyWalk(ObjectStore& store, meta::Caller caller, meta::InodeView bucket, Range range);

  // None: no more keys.
  Task<Result<std::optional<WalkedKey>>> next();
  // Leaves out the further keys that begin with `group`.
  void skip(std::string group);

 private:
  // An open folder.
  struct Level {
    std::string path;  // of its keys: empty, or with '/' at the end
    meta::InodeView dir;
    std::string filter = {};      // names must begin so
    std::string list_after = {};  // names up to this one are left out
    std::string above = {};       // and names up to this one, too
    bool marker_left = false;     // the marker is to be checked
    bool started = false;
    meta::MetaClient::DirPage page = {};
    size_t at = 0;
    std::map<std::string, meta::InodeView> waiting = {};  // folders, by name and '/'
  };

  Task<Result<void>> enter_first();
  Task<Result<void>> enter(std::string path, meta::InodeView dir, std::string filter);
  Task<Result<void>> start_at(Level& level, const std::string& rest);
  Task<Result<void>> add_folder(Level& level, const std::string& name);
  Task<Result<std::optional<WalkedKey>>> next_of(Level& level, bool& entered);
  Task<Result<bool>> has_entry(Level& level);
  Task<Result<bool>> has_marker(const Level& level);
  Task<void> drop_leftover(const Level& level, const meta::MetaClient::DirEntry& entry);

  ObjectStore& store_;
  const meta::Caller caller_;
  const meta::InodeView bucket_;
  const Range range_;
  std::string skipped_;
  bool begun_ = false;
  std::vector<std::unique_ptr<Level>> levels_;
};

}  // namespace ff::s3

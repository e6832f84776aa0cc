// Going through the names of a cluster: to what a path names, over the entries of a directory page
// by page, and over whole trees. However much there is, a page for each level is in memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "storage/meta/meta_client.h"

namespace ff::client {

// What a path names. Errors name the path.
Task<Result<meta::Seen>> find(meta::MetaClient& names, meta::Caller caller, std::string path,
                              bool follow);

// A name in a directory, which may be there or not.
struct Place {
  meta::Seen dir;
  std::string name;
  std::optional<meta::Seen> found;
};
// Errc::usage for a path that names no entry: the root, or one that ends in "." or "..".
Task<Result<Place>> find_place(meta::MetaClient& names, meta::Caller caller, std::string path);

// PATH + "/" + NAME, without doubling slashes.
std::string below(std::string_view path, std::string_view name);

// The entries of one directory, in order of their bytes. Owned by one task.
class Listing {
 public:
  Listing(meta::MetaClient& names, meta::Caller caller, meta::Ref dir, bool with_inodes);

  // Nothing: there are no more.
  Task<Result<std::optional<meta::MetaClient::Listed>>> next();

 private:
  meta::MetaClient& names_;
  const meta::Caller caller_;
  const meta::Ref dir_;
  const bool with_inodes_;
  meta::MetaClient::Page page_;
  size_t at_ = 0;
  std::string after_;
};

// All that is below a directory, each directory before what it holds. Owned by one task.
class TreeWalk {
 public:
  struct Step {
    enum class Kind : uint8_t {
      entry,
      left,    // a directory of which all has been told
      failed,  // a directory that cannot be read (further)
    };
    Kind kind = Kind::entry;
    std::string path;
    size_t depth = 0;                          // of what lies in the directory itself: 1
    std::optional<meta::Seen> seen = {};       // of an entry, unless its directory keeps it back
    meta::Kind inode_kind = meta::Kind::file;  // of an entry
    std::optional<Error> error = {};           // failed
  };
  TreeWalk(meta::MetaClient& names, meta::Caller caller, std::string path, meta::Seen top);

  // Nothing: it is over.
  Task<Result<std::optional<Step>>> next();

 private:
  struct Level {
    std::string path;
    meta::Seen dir;
    Listing listing;
  };
  void enter(std::string path, meta::Seen dir);

  meta::MetaClient& names_;
  const meta::Caller caller_;
  std::vector<Level> levels_;
  std::optional<Step> entering_;  // a directory that was told and comes next
};

}  // namespace ff::client

// BelowDirectory: reaches inodes of a cluster below one directory without following symbolic links,
// like openat2(2) with RESOLVE_BENEATH. Others may write there, too, and must not lead a program to
// other directories. Owned by one loop.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "storage/client/file_system.h"

namespace ff::client {

class BelowDirectory {
 public:
  // Follows symbolic links in `dir` itself. `files` outlives the result.
  static Task<Result<std::shared_ptr<BelowDirectory>>> open(FileSystem& files, meta::Caller caller,
                                                            std::string dir);

  // The same for a directory below this one; follows no symbolic link.
  Task<Result<std::shared_ptr<BelowDirectory>>> beneath(std::string dir);

  // The directory that holds the last component of `path`, which need not exist. Paths start with
  // that of the directory. ELOOP: a component before the last is a symbolic link; EXDEV: the path
  // is not below the directory, or has a component "." or "..".
  Task<Result<meta::InodeRef>> parent_of(std::string path);
  // The inode at `path`: a symbolic link at its end is that of the link. The directory itself is
  // the one that open() found.
  Task<Result<meta::InodeView>> lookup(std::string path);

 private:
  BelowDirectory(FileSystem& files, meta::Caller caller, std::string root, meta::InodeRef ref);

  FileSystem& files_;
  const meta::Caller caller_;
  const std::string root_;
  const meta::InodeRef root_ref_;
  std::map<std::string, meta::InodeRef> dirs_;  // found so far
};

}  // namespace ff::client

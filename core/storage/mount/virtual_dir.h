// 3fs-virt, a directory in the mount's root that nobody has made: programs made for 3FS ask for
// things there that no system call is for. Listings of the root do not show it.
//
//   iovs/           memory and rings of programs (rings.h): links to files in /dev/shm
//   rm-rf/          a link made here to a directory of the mount removes that with all it holds;
//                   so does a directory that is moved here
//   get-conf/KEY    a link that reads as the value of a setting
//   set-conf/KEY    a link made here to a value sets it, for the programs of that user
//
// A link to "mv:PATH" made anywhere, with PATH on the mount, moves what is there to the link's
// name. Paths in links are walked by way of the servers, with the rights of who has made the link:
// not by the kernel, which would have to ask this very loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/mount/callers.h"
#include "storage/mount/operations.h"
#include "storage/mount/request.h"
#include "storage/mount/rings.h"

namespace ff::mount {

// Inodes from here on are in no file system: real ones are counted from 1.
constexpr uint64_t kVirtualInodes = uint64_t{0xf3f5} << 48;

class VirtualDir {
 public:
  // All outlive it. `dir`: the mount point, as realpath(3) has it.
  VirtualDir(Operations& operations, Callers& callers, Rings& rings, std::string dir);

  // Settings of a user's programs.
  struct Settings {
    bool read_only = false;  // usr.readonly
    bool read_cache = true;  // usr.enable_read_cache: files may be read through the kernel's pages
  };
  Settings settings(uint32_t uid) const;

  // Whether the user has said that his programs change nothing, and this one would.
  bool forbids(const Request& request) const;
  // Whether the request is for it.
  bool takes(const Request& request) const;
  Task<Result<Reply>> serve(Request& request);

 private:
  using Answer = Task<Result<Reply>>;
  struct Entry {
    uint64_t inode = 0;
    uint32_t mode = 0;  // with its type
    uint32_t uid = 0;
    std::string target = {};
  };
  struct Named {
    std::string name;
    Entry entry;
  };

  std::optional<Entry> find(uint64_t inode, uint32_t uid) const;
  std::vector<Named> entries(uint64_t dir, uint32_t uid) const;
  std::string value_of(size_t setting, uint32_t uid) const;
  Result<Reply> lookup(Request& request) const;
  Result<Reply> getattr(Request& request) const;
  Result<Reply> readlink(Request& request) const;
  Result<Reply> opendir(Request& request);
  Result<Reply> list(Request& request, bool plus);
  Result<Reply> releasedir(Request& request);
  Result<Reply> unlink(Request& request);
  Answer symlink(Request& request);
  Answer rename(Request& request);
  Result<void> set(const std::string& key, const std::string& value, uint32_t uid);
  Result<std::string> path_below(std::string_view path) const;
  Task<Result<meta::MetaClient::Walked>> walk(meta::Caller caller, std::string path);
  Task<Result<void>> remove(meta::Caller caller, meta::InodeId dir, std::string name);
  Task<Result<void>> remove_path(meta::Caller caller, std::string path);
  Task<Result<void>> move_path(meta::Caller caller, std::string path, meta::InodeId to,
                               std::string name);

  Operations& operations_;
  Callers& callers_;
  Rings& rings_;
  const std::string dir_;
  std::map<uint32_t, Settings> settings_;  // by user
  std::map<uint64_t, std::vector<Named>> open_;
  uint64_t last_handle_ = 0;
};

}  // namespace ff::mount

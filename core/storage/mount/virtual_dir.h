// 3fs-virt, a virtual directory in the root of the mount, through which programs written for 3FS
// use functions without a system call. Listings of the root do not show it.
//
//   iovs/           links to memory files in /dev/shm register memory and rings (ring_registry.h)
//   rm-rf/          a link created here removes the directory that it points to, recursively; so
//   does
//                   moving a directory here
//   get-conf/KEY    a link whose target is the value of a setting
//   set-conf/KEY    a link created here sets the setting KEY of the user to the target
//
// Creating a link to "mv:PATH" anywhere on the mount moves PATH to the name of the link. The
// metadata service resolves paths in links with the rights of the user: the kernel would send
// requests to this loop, which waits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "storage/mount/caller_resolver.h"
#include "storage/mount/fuse_request.h"
#include "storage/mount/operations.h"
#include "storage/mount/ring_registry.h"

namespace ff::mount {

// The first virtual inode number; real inode numbers start at 1.
constexpr uint64_t kVirtualInodes = uint64_t{0xf3f5} << 48;

class VirtualDir {
 public:
  // All outlive it. `dir`: the mount point as realpath(3) returns it.
  VirtualDir(Operations& operations, CallerResolver& callers, RingRegistry& rings, std::string dir);

  // Takes the settings that a predecessor left. Call it before Operations::restore().
  void restore();

  // Settings of one user.
  struct Settings {
    bool read_only = false;  // usr.readonly
    bool read_cache = true;  // usr.enable_read_cache: reads may use the page cache
  };
  Settings settings(uint32_t uid) const;

  // Whether the user has set usr.readonly and the request would change something.
  bool is_forbidden(const FuseRequest& request) const;
  // Whether the request is for this directory.
  bool handles(const FuseRequest& request) const;
  Task<Result<FuseReply>> serve(FuseRequest& request);

 private:
  using ReplyTask = Task<Result<FuseReply>>;
  struct Entry {
    uint64_t inode = 0;
    uint32_t mode = 0;  // including the file type
    uint32_t uid = 0;
    std::string target = {};
  };
  struct NamedEntry {
    std::string name;
    Entry entry;
  };

  std::optional<Entry> find(uint64_t inode, uint32_t uid) const;
  std::vector<NamedEntry> entries(uint64_t dir, uint32_t uid) const;
  std::string value_of(size_t setting, uint32_t uid) const;
  Result<FuseReply> lookup(FuseRequest& request) const;
  Result<FuseReply> getattr(FuseRequest& request) const;
  Result<FuseReply> readlink(FuseRequest& request) const;
  Result<FuseReply> opendir(FuseRequest& request);
  Result<FuseReply> list(FuseRequest& request, bool plus);
  Result<FuseReply> releasedir(FuseRequest& request);
  Result<FuseReply> unlink(FuseRequest& request);
  ReplyTask symlink(FuseRequest& request);
  ReplyTask rename(FuseRequest& request);
  Result<void> set_setting(const std::string& key, const std::string& value, uint32_t uid);
  Result<std::string> path_in_mount(std::string_view path) const;
  Task<Result<meta::MetaClient::WalkResult>> walk(meta::Caller caller, std::string path);
  Task<Result<void>> remove(meta::Caller caller, meta::InodeId dir, std::string name);
  Task<Result<void>> remove_path(meta::Caller caller, std::string path);
  Task<Result<void>> move_path(meta::Caller caller, std::string path, meta::InodeId to,
                               std::string name);

  Operations& operations_;
  CallerResolver& callers_;
  RingRegistry& rings_;
  const std::string dir_;
  std::map<uint32_t, Settings> settings_;                      // by user
  std::map<uint32_t, client::RecoveryTable::Record> records_;  // of the settings
  std::map<uint64_t, std::vector<NamedEntry>> open_dirs_;
  uint64_t last_handle_ = 0;
};

}  // namespace ff::mount

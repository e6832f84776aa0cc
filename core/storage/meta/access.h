// Permission checks: the mode bits of POSIX.1-2017 (XBD 4.5, file access permissions), with the
// rules of Linux where POSIX leaves a choice. A refusal is Errc::refused with EACCES or EPERM.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "storage/meta/inode.h"

namespace ff::meta {

constexpr size_t kGroupsMax =
    1024;  // supplementary groups of a caller; Linux allows 65,536, NFS 16

struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};  // supplementary, without gid
  // The directory above which it reaches nothing: paths and links that lead out are refused.
  InodeId top = kRoot;
  // The number of the program's request to a mount; 0: none. A change that is repeated for the same
  // request, after the mount's process has died, is applied once (MetaClientState).
  uint64_t origin = 0;
  // The lease of its client, which may use what is delegated to it (delegation_recalls.h).
  uint64_t lease = 0;
  bool is_root() const { return uid == 0; }
  bool in_group(uint32_t group) const;
};

constexpr uint32_t kMayRead = 4;
constexpr uint32_t kMayWrite = 2;
constexpr uint32_t kMaySearch = 1;  // search a directory, execute a file

constexpr uint32_t kSetUid = 04000;
constexpr uint32_t kSetGid = 02000;
constexpr uint32_t kSticky = 01000;

// Succeeds if the mode of the inode grants the caller all of `rights`. Errors name `what`.
Result<void> check_access(const Caller& caller, const Inode& inode, uint32_t rights,
                          std::string_view what);
// Succeeds if the caller may unlink or replace the name of `child` in `dir` (sticky bit included).
Result<void> check_removal(const Caller& caller, const Inode& dir, const Inode& child,
                           std::string_view what);
Result<void> check_owner(const Caller& caller, const Inode& inode, std::string_view what);

// The mode without set-user-ID and set-group-ID, as a write or a change of owner leaves it.
uint32_t without_set_ids(const Inode& inode);

// Whether the error says that the lease of a client has ended (Caller::lease).
bool is_lease_lost(const Error& error);

}  // namespace ff::meta

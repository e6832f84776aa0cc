// Who may do what: the mode bits of POSIX.1-2017 (XBD 4.5, file access permissions), with the
// rules of Linux where POSIX leaves a choice. Refusals are Errc::refused with EACCES or EPERM.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "storage/meta/inode.h"

namespace ff::meta {

constexpr size_t kGroupsMax = 1024;  // of a caller; Linux knows 65,536, NFS 16

struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};  // beside gid
  bool root() const { return uid == 0; }
  bool in(uint32_t group) const;
};

constexpr uint32_t kMayRead = 4;
constexpr uint32_t kMayWrite = 2;
constexpr uint32_t kMaySearch = 1;  // of a directory; execute of a file

constexpr uint32_t kSetUid = 04000;
constexpr uint32_t kSetGid = 02000;
constexpr uint32_t kSticky = 01000;

// Whether the inode's mode gives the caller all of `rights`. `what` is named in the refusal.
Result<void> check_access(const Caller& caller, const Inode& inode, uint32_t rights,
                          std::string_view what);
// Whether the caller may take a name for `child` out of `dir`, or put another child under it.
Result<void> check_removal(const Caller& caller, const Inode& dir, const Inode& child,
                           std::string_view what);
Result<void> check_owner(const Caller& caller, const Inode& inode, std::string_view what);

// What a change of mode, owner or length leaves of the bits that give rights to whoever runs it.
uint32_t without_set_ids(const Inode& inode);

}  // namespace ff::meta

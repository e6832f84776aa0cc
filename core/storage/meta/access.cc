// access.cc: the first matching class of owner, group and others decides.
#include "storage/meta/access.h"

#include <algorithm>
#include <cerrno>

namespace ff::meta {

bool Caller::in_group(uint32_t group) const {
  return group == gid || std::ranges::find(groups, group) != groups.end();
}

Result<void> check_access(const Caller& caller, const Inode& inode, uint32_t rights,
                          std::string_view what) {
  // Root may read and write everything, but execute only what somebody may execute.
  const bool runs = (rights & kMaySearch) != 0 && !inode.is(InodeType::directory);
  if (caller.is_root() && (!runs || (inode.mode & 0111) != 0)) return {};
  uint32_t granted = inode.mode & 7;
  if (caller.uid == inode.uid) {
    granted = (inode.mode >> 6) & 7;
  } else if (caller.in_group(inode.gid)) {
    granted = (inode.mode >> 3) & 7;
  }
  if ((granted & rights) == rights && !(caller.is_root() && runs)) return {};
  return errno_error(EACCES, what);
}

Result<void> check_removal(const Caller& caller, const Inode& dir, const Inode& child,
                           std::string_view what) {
  FF_TRY(check_access(caller, dir, kMayWrite | kMaySearch, what));
  const bool owns = caller.is_root() || caller.uid == child.uid || caller.uid == dir.uid;
  if ((dir.mode & kSticky) == 0 || owns) return {};
  Error error = errno_error(EPERM, what);
  error.hint = std::string(
      "The directory is sticky: only the owners of the file and the directory may do this.");
  return error;
}

Result<void> check_owner(const Caller& caller, const Inode& inode, std::string_view what) {
  if (caller.is_root() || caller.uid == inode.uid) return {};
  return errno_error(EPERM, what);
}

// Set-group-ID without group execute means mandatory locking, not set-group-ID; on a directory it
// means that new files take its group. Every other kind of inode loses the bits, as in Linux.
uint32_t without_set_ids(const Inode& inode) {
  if (inode.is(InodeType::directory)) return inode.mode;
  const uint32_t group = (inode.mode & 0010) != 0 ? kSetGid : 0;
  return inode.mode & ~(kSetUid | group);
}

bool is_lease_lost(const Error& error) { return error.sys == EKEYEXPIRED; }

}  // namespace ff::meta

// access.cc: the first class of owner, group and others that fits decides.
#include "storage/meta/access.h"

#include <algorithm>
#include <cerrno>

namespace ff::meta {

bool Caller::in(uint32_t group) const {
  return group == gid || std::ranges::find(groups, group) != groups.end();
}

Result<void> check_access(const Caller& caller, const Inode& inode, uint32_t rights,
                          std::string_view what) {
  // Root reads and writes everything, but runs only what somebody may run.
  const bool runs = (rights & kMaySearch) != 0 && !inode.is(Kind::directory);
  if (caller.root() && (!runs || (inode.mode & 0111) != 0)) return {};
  uint32_t granted = inode.mode & 7;
  if (caller.uid == inode.uid) {
    granted = (inode.mode >> 6) & 7;
  } else if (caller.in(inode.gid)) {
    granted = (inode.mode >> 3) & 7;
  }
  if ((granted & rights) == rights && !(caller.root() && runs)) return {};
  return errno_error(EACCES, what);
}

Result<void> check_removal(const Caller& caller, const Inode& dir, const Inode& child,
                           std::string_view what) {
  FF_TRY(check_access(caller, dir, kMayWrite | kMaySearch, what));
  const bool owns = caller.root() || caller.uid == child.uid || caller.uid == dir.uid;
  if ((dir.mode & kSticky) == 0 || owns) return {};
  Error error = errno_error(EPERM, what);
  error.hint = std::string("The directory is sticky: only the owners of file and directory may.");
  return error;
}

Result<void> check_owner(const Caller& caller, const Inode& inode, std::string_view what) {
  if (caller.root() || caller.uid == inode.uid) return {};
  return errno_error(EPERM, what);
}

// Set-group-ID without the right of the group to run it is not such a bit (mandatory locking).
uint32_t without_set_ids(const Inode& inode) {
  if (!inode.is(Kind::file)) return inode.mode;
  const uint32_t group = (inode.mode & 0010) != 0 ? kSetGid : 0;
  return inode.mode & ~(kSetUid | group);
}

}  // namespace ff::meta

// namespace_rules.cc: the rules of POSIX for owner, mode and times of new and changed inodes.
#include <algorithm>
#include <cerrno>

#include "platform/base/text.h"
#include "storage/meta/namespace_steps.h"

namespace ff::meta {

Inode new_inode(const Caller& caller, const Inode& dir, const Namespace::CreateOptions& create,
                InodeId id, int64_t now_ns) {
  Inode inode{.id = id,
              .kind = create.kind,
              .mode = create.mode & 07777,
              .uid = caller.uid,
              .gid = caller.gid,
              .links = create.kind == InodeType::directory ? 2U : 1U,
              .atime_ns = now_ns,
              .mtime_ns = now_ns,
              .ctime_ns = now_ns,
              .btime_ns = now_ns,
              .target = create.target,
              .device = create.device};
  if ((dir.mode & kSetGid) != 0) {
    inode.gid = dir.gid;
    if (inode.is(InodeType::directory)) inode.mode |= kSetGid;
  }
  if (inode.is(InodeType::directory)) {
    inode.parent = dir.id;
    inode.layout = create.layout.value_or(dir.layout);
  }
  // Only a member of the group may set set-group-ID.
  const bool runs_as_group = !inode.is(InodeType::directory) && (inode.mode & kSetGid) != 0;
  if (runs_as_group && !caller.is_root() && !caller.in_group(inode.gid)) inode.mode &= ~kSetGid;
  return inode;
}

Layout wanted_layout(const Inode& dir, const Namespace::CreateOptions& create) {
  Layout wanted = create.layout.value_or(dir.layout);
  if (wanted.chunk_size == 0) wanted.chunk_size = create.chunk_size;
  return wanted;
}

Result<void> check_create(const Caller& caller, const std::string& name,
                          const Namespace::CreateOptions& create) {
  FF_TRY(check_name(name));
  if (create.target.size() > kSymlinkTargetMax)
    return errno_error(ENAMETOOLONG, "the link's target");
  if (create.kind == InodeType::symlink && create.target.empty()) return errno_error(ENOENT, "''");
  const bool device = create.kind == InodeType::character || create.kind == InodeType::block;
  if (device && !caller.is_root()) return errno_error(EPERM, printable(name));
  return {};
}

Result<void> check_open(const Caller& caller, const Inode& inode, uint32_t rights,
                        const std::string& what) {
  if (inode.is(InodeType::directory) && (rights & kMayWrite) != 0) return errno_error(EISDIR, what);
  if (inode.is(InodeType::symlink)) return errno_error(ELOOP, what);
  if (inode.links == 0) return errno_error(ENOENT, what);
  return check_access(caller, inode, rights, what);
}

namespace {

Result<void> change_mode(const Caller& caller, Inode& inode, uint32_t mode,
                         const std::string& what) {
  FF_TRY(check_owner(caller, inode, what));
  inode.mode = mode & 07777;
  const bool own_group = caller.is_root() || caller.in_group(inode.gid);
  if (!own_group) inode.mode &= ~kSetGid;
  return {};
}

// The owner may change the group only to one of its own groups.
Result<void> change_owner(const Caller& caller, Inode& inode, const Namespace::Attributes& to,
                          const std::string& what) {
  const uint32_t uid = to.uid.value_or(inode.uid);
  const uint32_t gid = to.gid.value_or(inode.gid);
  if (!caller.is_root()) {
    const bool owner = caller.uid == inode.uid && uid == inode.uid;
    if (!owner || (gid != inode.gid && !caller.in_group(gid))) return errno_error(EPERM, what);
  }
  inode.uid = uid;
  inode.gid = gid;
  inode.mode = without_set_ids(inode);
  return {};
}

Result<void> check_times(const Caller& caller, const Inode& inode, const Namespace::Attributes& to,
                         const std::string& what) {
  if (caller.is_root() || caller.uid == inode.uid) return {};
  if (to.times_now) return check_access(caller, inode, kMayWrite, what);
  return errno_error(EPERM, what);
}

}  // namespace

Result<void> change_attributes(const Caller& caller, Inode& inode, Namespace::Attributes to,
                               int64_t now_ns) {
  const std::string what = fmt::format("inode {}", inode.id);
  if (to.times_now) to.atime_ns = to.mtime_ns = now_ns;
  if (to.uid || to.gid) FF_TRY(change_owner(caller, inode, to, what));
  if (to.mode) FF_TRY(change_mode(caller, inode, *to.mode, what));
  if (to.atime_ns || to.mtime_ns) FF_TRY(check_times(caller, inode, to, what));
  inode.atime_ns = to.atime_ns.value_or(inode.atime_ns);
  inode.mtime_ns = to.mtime_ns.value_or(inode.mtime_ns);
  inode.ctime_ns = now_ns;
  return {};
}

void take_length(Inode& inode, const Namespace::LengthReport& report, int64_t now_ns) {
  if (inode.truncate_seq == report.truncate_seq) {
    inode.length = std::max(inode.length, report.min_length);
  }
  if (report.mtime_ns != 0) {
    inode.mtime_ns = std::max(inode.mtime_ns, report.mtime_ns);
    inode.ctime_ns = now_ns;
  }
  if (report.mtime_ns != 0 || report.maybe_written) inode.data_version++;
}

}  // namespace ff::meta

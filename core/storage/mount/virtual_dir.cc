// virtual_dir.cc: the virtual entries, and the commands behind them.
#include "storage/mount/virtual_dir.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/usrbio/ioctls.h"
#include "storage/usrbio/iov_link_name.h"
#include "storage/usrbio/shm.h"

namespace ff::mount {

namespace {

enum VirtualInode : uint64_t {
  kTop = kVirtualInodes,
  kIovs,
  kRmRf,
  kGetConf,
  kSetConf,
  kKeys = kVirtualInodes + 0x100,    // entries of get-conf, two per setting
  kGone = kVirtualInodes + 0xfff,    // a command link, which disappears at once
  kLinks = kVirtualInodes + 0x1000,  // and the number of a link of RingRegistry
};

constexpr std::string_view kMove = "mv:";
constexpr std::array<std::string_view, 2> kSettings = {"usr.readonly", "usr.enable_read_cache"};
constexpr uint32_t kLinkMode = S_IFLNK | 0777;
constexpr int kWakeLinkCount = 3;

struct Folder {
  std::string_view name;
  VirtualInode inode;
  uint32_t mode;
};
// The kernel checks modes before it sends requests.
constexpr std::array<Folder, 4> kFolders = {{{"iovs", kIovs, 01777},
                                             {"rm-rf", kRmRf, 01777},
                                             {"get-conf", kGetConf, 0555},
                                             {"set-conf", kSetConf, 01777}}};

fuse_attr attributes(uint64_t inode, uint32_t mode, uint32_t uid, uint64_t size) {
  fuse_attr attr = {};
  attr.ino = inode;
  attr.mode = mode;
  attr.uid = uid;
  attr.size = size;
  attr.nlink = S_ISDIR(mode) ? 2 : 1;
  attr.blksize = 4096;
  return attr;
}

// An entry with timeouts of zero.
Result<FuseReply> entry_reply(uint64_t inode, uint32_t mode, uint32_t uid, uint64_t size) {
  fuse_entry_out out = {};
  out.nodeid = inode;
  out.attr = attributes(inode, mode, uid, size);
  return reply_of(out);
}

bool is_virtual(uint64_t nodeid) { return nodeid >= kVirtualInodes; }

// A predecessor of this process may have done it without answering.
bool is_repeated(const FuseRequest& request) {
  return (request.header.unique & kUniqueResend) != 0;
}

std::string_view text_of(bool value) { return value ? "true" : "false"; }

Result<FuseReply> no_entry() { return errno_error(ENOENT, "3fs-virt"); }
Result<FuseReply> not_allowed() { return errno_error(EPERM, "3fs-virt"); }

}  // namespace

VirtualDir::VirtualDir(Operations& operations, CallerResolver& callers, RingRegistry& rings,
                       std::string dir)
    : operations_(operations), callers_(callers), rings_(rings), dir_(std::move(dir)) {
  // Programs have handles of predecessors of this process.
  const usrbio::IovId random = usrbio::random_id();
  std::memcpy(&last_handle_, random.data(), sizeof last_handle_);
  last_handle_ >>= 24;  // room for all later ones
}

VirtualDir::Settings VirtualDir::settings(uint32_t uid) const {
  const auto found = settings_.find(uid);
  return found == settings_.end() ? Settings() : found->second;
}

std::string VirtualDir::value_of(size_t setting, uint32_t uid) const {
  const Settings of_user = settings(uid);
  return std::string(text_of(setting == 0 ? of_user.read_only : of_user.read_cache));
}

Result<void> VirtualDir::set_setting(const std::string& key, const std::string& value,
                                     uint32_t uid) {
  const auto found = std::ranges::find(kSettings, key);
  if (found == kSettings.end()) return errno_error(ENOENT, printable(key));
  if (value != "true" && value != "false") return errno_error(EINVAL, printable(value));
  Settings& of_user = settings_[uid];
  (found == kSettings.begin() ? of_user.read_only : of_user.read_cache) = value == "true";
  if (operations_.files().recovery() == nullptr) return {};
  records_[uid] = operations_.files().recovery()->add(
      {.kind = client::RecoveryTable::Kind::setting,
       .fixed = {uid, of_user.read_only ? uint64_t{1} : 0, of_user.read_cache ? uint64_t{1} : 0}});
  return {};
}

void VirtualDir::restore() {
  if (operations_.files().recovery() == nullptr) return;
  for (auto& record : operations_.files().recovery()->take(client::RecoveryTable::Kind::setting)) {
    const auto uid = static_cast<uint32_t>(record.fixed(0));
    settings_[uid] = {.read_only = record.fixed(1) != 0, .read_cache = record.fixed(2) != 0};
    records_[uid] = std::move(record);
  }
}

bool VirtualDir::handles(const FuseRequest& request) const {
  const uint32_t opcode = request.header.opcode;
  if (opcode == FUSE_STATFS || opcode == FUSE_IOCTL) return false;  // for the whole mount
  if (is_virtual(request.header.nodeid)) return true;
  const auto begins_with = [&](auto& in) {
    if (request.body.size() < sizeof in) return false;
    std::memcpy(&in, request.body.data(), sizeof in);
    return true;
  };
  fuse_rename_in rename;
  fuse_rename2_in rename2;
  fuse_link_in link;
  switch (opcode) {
    case FUSE_LOOKUP:
      return request.header.nodeid == FUSE_ROOT_ID &&
             request.body.substr(0, request.body.find('\0')) == usrbio::kVirtualDir;
    case FUSE_RENAME: return begins_with(rename) && is_virtual(rename.newdir);
    case FUSE_RENAME2: return begins_with(rename2) && is_virtual(rename2.newdir);
    case FUSE_LINK: return begins_with(link) && is_virtual(link.oldnodeid);
    case FUSE_SYMLINK: {
      const size_t name = request.body.find('\0');
      const std::string order = std::string(kMove) + dir_ + (dir_ == "/" ? "" : "/");
      return name != std::string::npos && request.body.compare(name + 1, order.size(), order) == 0;
    }
    default: return false;
  }
}

bool VirtualDir::is_forbidden(const FuseRequest& request) const {
  if (settings_.empty() || !settings(request.header.uid).read_only) return false;
  switch (request.header.opcode) {
    case FUSE_OPEN: {
      fuse_open_in in = {};
      std::memcpy(&in, request.body.data(), std::min(sizeof in, request.body.size()));
      return (in.flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY;
    }
    case FUSE_IOCTL: {
      fuse_ioctl_in in = {};
      std::memcpy(&in, request.body.data(), std::min(sizeof in, request.body.size()));
      return _IOC_NR(in.cmd) >= static_cast<unsigned>(usrbio::Ioctl::link);
    }
    case FUSE_SETATTR:
    case FUSE_SYMLINK:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_LINK:
    case FUSE_CREATE:
    case FUSE_SETXATTR:
    case FUSE_REMOVEXATTR: return true;
    default: return false;
  }
}

std::vector<VirtualDir::NamedEntry> VirtualDir::entries(uint64_t dir, uint32_t uid) const {
  std::vector<NamedEntry> all;
  if (dir == kTop) {
    for (const Folder& folder : kFolders) {
      all.push_back({std::string(folder.name), {folder.inode, S_IFDIR | folder.mode, 0, {}}});
    }
  }
  if (dir == kGetConf) {
    for (size_t i = 0; i < kSettings.size(); i++) {
      // The kernel caches link targets, so another value needs another inode number.
      const std::string value = value_of(i, uid);
      const uint64_t inode = kKeys + 2 * i + (value == text_of(true) ? 1 : 0);
      all.push_back({std::string(kSettings[i]), {inode, kLinkMode, 0, value}});
    }
  }
  if (dir != kIovs) return all;
  for (size_t i = 0; i < kWakeLinkCount && !rings_.wake_path().empty(); i++) {
    all.push_back({std::string(usrbio::kWakeLinks[i]),
                   {kLinks + rings_.wake_number() + i, kLinkMode, 0, rings_.wake_path()}});
  }
  for (const auto& [name, link] : rings_.links(uid)) {
    all.push_back({name, {kLinks + link->number, kLinkMode, link->owner.uid, link->target}});
  }
  return all;
}

std::optional<VirtualDir::Entry> VirtualDir::find(uint64_t inode, uint32_t uid) const {
  if (inode == kTop) return Entry{kTop, S_IFDIR | 0555, 0, {}};
  for (const VirtualInode dir : {kTop, kGetConf, kIovs}) {
    for (NamedEntry& listed : entries(dir, uid)) {
      if (listed.entry.inode == inode) return std::move(listed.entry);
    }
  }
  return std::nullopt;
}

Result<FuseReply> VirtualDir::lookup(FuseRequest& request) const {
  FF_TRY(const std::string name, request.name());
  const uint32_t uid = request.header.uid;
  const uint64_t dir = request.header.nodeid;
  if (dir == FUSE_ROOT_ID) return entry_reply(kTop, S_IFDIR | 0555, 0, 0);
  for (const NamedEntry& listed : entries(dir, uid)) {
    if (listed.name != name) continue;
    const Entry& entry = listed.entry;
    return entry_reply(entry.inode, entry.mode, entry.uid, entry.target.size());
  }
  return no_entry();
}

Result<FuseReply> VirtualDir::getattr(FuseRequest& request) const {
  const auto entry = find(request.header.nodeid, request.header.uid);
  if (!entry) return no_entry();
  fuse_attr_out out = {};
  out.attr = attributes(entry->inode, entry->mode, entry->uid, entry->target.size());
  return reply_of(out);
}

Result<FuseReply> VirtualDir::readlink(FuseRequest& request) const {
  auto entry = find(request.header.nodeid, request.header.uid);
  if (!entry) return no_entry();
  if (!S_ISLNK(entry->mode)) return errno_error(EINVAL, "readlink");
  return FuseReply{.bytes = std::move(entry->target)};
}

Result<FuseReply> VirtualDir::opendir(FuseRequest& request) {
  const uint64_t dir = request.header.nodeid;
  fuse_open_out out = {};
  const uint64_t origin = operations_.origin_of(request.header.unique);
  const auto opened = is_repeated(request) ? rings_.dir_of_origin(origin) : std::nullopt;
  out.fh = opened ? *opened : ++last_handle_;
  open_dirs_[out.fh] = entries(dir, request.header.uid);
  if (dir == kIovs && !opened) {
    rings_.dir_opened(out.fh, callers_.process_of(request.header.pid), origin);
  }
  return reply_of(out);
}

Result<FuseReply> VirtualDir::list(FuseRequest& request, bool plus) {
  FF_TRY(const auto in, request.read_struct<fuse_read_in>());
  // A program may go on with what it has opened at a predecessor of this process.
  auto found = open_dirs_.find(in.fh);
  if (found == open_dirs_.end()) {
    found = open_dirs_.emplace(in.fh, entries(request.header.nodeid, request.header.uid)).first;
  }
  FuseReply reply;
  for (size_t at = in.offset; at < found->second.size(); at++) {
    const auto& [name, entry] = found->second[at];
    const size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
    const size_t end = reply.bytes.size() + FUSE_REC_ALIGN(head + name.size());
    if (end > in.size) break;
    // Without attributes the kernel looks up each entry by itself.
    if (plus) append_struct(reply.bytes, fuse_entry_out{});
    append_struct(reply.bytes, fuse_dirent{.ino = entry.inode,
                                           .off = at + 1,
                                           .namelen = static_cast<uint32_t>(name.size()),
                                           .type = (entry.mode & S_IFMT) >> 12});
    reply.bytes.append(name);
    reply.bytes.resize(end);
  }
  return reply;
}

Result<FuseReply> VirtualDir::releasedir(FuseRequest& request) {
  FF_TRY(const auto in, request.read_struct<fuse_release_in>());
  open_dirs_.erase(in.fh);
  if (request.header.nodeid == kIovs) rings_.dir_closed(in.fh);
  return FuseReply();
}

Result<FuseReply> VirtualDir::unlink(FuseRequest& request) {
  FF_TRY(const std::string name, request.name());
  if (request.header.nodeid != kIovs) return not_allowed();
  const auto removed = rings_.remove(name, request.header.uid);
  // The predecessor has removed it and not answered.
  const bool before = !removed && removed.error().sys == ENOENT && is_repeated(request);
  if (!removed && !before) return removed.error();
  return FuseReply();
}

// The path relative to the mount point; rejects paths that lead outside.
Result<std::string> VirtualDir::path_in_mount(std::string_view path) const {
  const std::string_view point = dir_ == "/" ? std::string_view() : std::string_view(dir_);
  const Error outside = errno_error(EINVAL, printable(path) + ": not on this mount");
  if (!path.starts_with(point)) return outside;
  path.remove_prefix(point.size());
  if (!path.starts_with('/')) return outside;
  std::string below;
  for (const std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == ".." || (below.empty() && part == usrbio::kVirtualDir)) return outside;
    below += '/';
    below += part;
  }
  if (below.empty()) return outside;
  return below.substr(1);
}

Task<Result<meta::MetaClient::WalkResult>> VirtualDir::walk(meta::Caller caller, std::string path) {
  FF_CO_TRY(std::string below, path_in_mount(path));
  auto walking = operations_.files().metadata().walk(
      std::move(caller), meta::InodeRef{.id = operations_.root()}, std::move(below), false);
  FF_CO_TRY(auto walked, co_await std::move(walking));
  if (!walked.found || walked.name.empty()) co_return errno_error(ENOENT, printable(path));
  co_return walked;
}

Task<Result<void>> VirtualDir::remove(meta::Caller caller, meta::InodeId dir, std::string name) {
  auto removed = co_await operations_.remove_tree(caller, dir, name);
  if (removed || removed.error().sys != ENOTDIR) co_return removed;
  co_return co_await operations_.unlink(std::move(caller), dir, std::move(name));
}

Task<Result<void>> VirtualDir::remove_path(meta::Caller caller, std::string path) {
  FF_CO_TRY(const auto walked, co_await walk(caller, std::move(path)));
  co_return co_await remove(std::move(caller), walked.dir.inode.id, walked.name);
}

Task<Result<void>> VirtualDir::move_path(meta::Caller caller, std::string path, meta::InodeId to,
                                         std::string name) {
  FF_CO_TRY(const auto walked, co_await walk(caller, std::move(path)));
  Operations::Rename how{
      .from_dir = walked.dir.inode.id, .from = walked.name, .to_dir = to, .to = std::move(name)};
  co_return co_await operations_.rename(std::move(caller), std::move(how));
}

VirtualDir::ReplyTask VirtualDir::symlink(FuseRequest& request) {
  FF_CO_TRY(const std::string name, request.name());
  FF_CO_TRY(std::string target, request.name());
  const auto& header = request.header;
  meta::Caller caller = callers_.caller(header.uid, header.gid, header.pid);
  caller.origin = operations_.origin_of(header.unique);
  const uint64_t size = target.size();
  if (header.nodeid == kIovs) {
    const RingRegistry::Owner owner{.uid = header.uid, .process = callers_.process_of(header.pid)};
    // The predecessor may have made it without answering.
    const auto* link = is_repeated(request) ? rings_.find(name, header.uid) : nullptr;
    if (link == nullptr || link->target != target) {
      FF_CO_TRY(link, rings_.add(name, target, owner));
    }
    co_return entry_reply(kLinks + link->number, kLinkMode, header.uid, size);
  }
  if (header.nodeid == kSetConf) {
    FF_CO_TRY(set_setting(name, target, header.uid));
  } else if (header.nodeid == kRmRf) {
    FF_CO_TRY(co_await remove_path(caller, std::move(target)));
  } else if (!is_virtual(header.nodeid)) {
    const meta::InodeId dir =
        header.nodeid == FUSE_ROOT_ID ? operations_.root() : meta::InodeId{header.nodeid};
    FF_CO_TRY(co_await move_path(caller, target.substr(kMove.size()), dir, name));
  } else {
    co_return not_allowed();
  }
  co_return entry_reply(kGone, kLinkMode, header.uid, size);
}

VirtualDir::ReplyTask VirtualDir::rename(FuseRequest& request) {
  uint64_t to = 0;
  if (request.header.opcode == FUSE_RENAME) {
    FF_CO_TRY(const auto in, request.read_struct<fuse_rename_in>());
    to = in.newdir;
  } else {
    FF_CO_TRY(const auto in, request.read_struct<fuse_rename2_in>());
    to = in.newdir;
  }
  FF_CO_TRY(std::string name, request.name());
  const auto& header = request.header;
  if (to != kRmRf || is_virtual(header.nodeid)) co_return not_allowed();
  const meta::InodeId dir =
      header.nodeid == FUSE_ROOT_ID ? operations_.root() : meta::InodeId{header.nodeid};
  meta::Caller caller = callers_.caller(header.uid, header.gid, header.pid);
  caller.origin = operations_.origin_of(header.unique);
  FF_CO_TRY(co_await remove(std::move(caller), dir, std::move(name)));
  co_return FuseReply();
}

Task<Result<FuseReply>> VirtualDir::serve(FuseRequest& request) {
  switch (request.header.opcode) {
    case FUSE_LOOKUP: co_return lookup(request);
    case FUSE_GETATTR: co_return getattr(request);
    case FUSE_READLINK: co_return readlink(request);
    case FUSE_OPENDIR: co_return opendir(request);
    case FUSE_READDIR: co_return list(request, false);
    case FUSE_READDIRPLUS: co_return list(request, true);
    case FUSE_RELEASEDIR: co_return releasedir(request);
    case FUSE_UNLINK: co_return unlink(request);
    case FUSE_FSYNCDIR: co_return FuseReply();
    case FUSE_SYMLINK: {
      co_return co_await symlink(request);
    }
    case FUSE_RENAME:
    case FUSE_RENAME2: {
      co_return co_await rename(request);
    }
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR: co_return errno_error(EOPNOTSUPP, "3fs-virt");
    default: co_return not_allowed();
  }
}

}  // namespace ff::mount

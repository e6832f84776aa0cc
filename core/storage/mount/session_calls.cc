// session_calls.cc: each request of the kernel, from its struct to the operation and back.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "storage/mount/session.h"

namespace ff::mount {

namespace {

constexpr uint32_t kRenameNoReplace = 1;  // linux/fs.h
constexpr uint32_t kRenameExchange = 2;
constexpr uint32_t kXattrCreate = 1;  // sys/xattr.h
constexpr uint32_t kXattrReplace = 2;
constexpr uint64_t kBlock = 4 * kKiB;  // of statfs(2)

Result<Reply> done(const Result<void>& result) {
  if (!result) return result.error();
  return Reply();
}

Error handle_not_open() { return errno_error(EBADF, "a handle"); }

// How much longer what was seen then is believed.
void set_valid(int64_t left_ns, uint64_t& seconds, uint32_t& ns) {
  left_ns = std::max<int64_t>(left_ns, 0);
  seconds = static_cast<uint64_t>(left_ns / kSecond);
  ns = static_cast<uint32_t>(left_ns % kSecond);
}

uint32_t flags_of(const Operations::Opened& opened, bool writes) {
  uint32_t flags = 0;
  if (opened.direct) flags |= FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  if (opened.keep_pages) flags |= FOPEN_KEEP_CACHE;
  if (!writes) flags |= FOPEN_NOFLUSH;
  return flags;
}

bool writes(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY; }

}  // namespace

void Session::declare_calls() {
  const auto add = [this](uint32_t opcode, const char* name, Handler handler) {
    calls_[opcode] = {handler, name, nullptr};
  };
  add(FUSE_LOOKUP, "lookup", &Session::lookup);
  add(FUSE_GETATTR, "getattr", &Session::getattr);
  add(FUSE_SETATTR, "setattr", &Session::setattr);
  add(FUSE_READLINK, "readlink", &Session::readlink);
  add(FUSE_SYMLINK, "symlink", &Session::symlink);
  add(FUSE_MKNOD, "mknod", &Session::mknod);
  add(FUSE_MKDIR, "mkdir", &Session::mkdir);
  add(FUSE_UNLINK, "unlink", &Session::unlink);
  add(FUSE_RMDIR, "rmdir", &Session::rmdir);
  add(FUSE_RENAME, "rename", &Session::rename);
  add(FUSE_RENAME2, "rename2", &Session::rename2);
  add(FUSE_LINK, "link", &Session::link);
  add(FUSE_OPEN, "open", &Session::open);
  add(FUSE_CREATE, "create", &Session::create);
  add(FUSE_READ, "read", &Session::read);
  add(FUSE_WRITE, "write", &Session::write);
  add(FUSE_FLUSH, "flush", &Session::flush);
  add(FUSE_RELEASE, "release", &Session::release);
  add(FUSE_FSYNC, "fsync", &Session::fsync);
  add(FUSE_FALLOCATE, "fallocate", &Session::fallocate);
  add(FUSE_LSEEK, "lseek", &Session::lseek);
  add(FUSE_STATFS, "statfs", &Session::statfs);
  add(FUSE_SETXATTR, "setxattr", &Session::setxattr);
  add(FUSE_GETXATTR, "getxattr", &Session::getxattr);
  add(FUSE_LISTXATTR, "listxattr", &Session::listxattr);
  add(FUSE_REMOVEXATTR, "removexattr", &Session::removexattr);
  add(FUSE_OPENDIR, "opendir", &Session::opendir);
  add(FUSE_READDIR, "readdir", &Session::readdir);
  add(FUSE_READDIRPLUS, "readdirplus", &Session::readdirplus);
  add(FUSE_RELEASEDIR, "releasedir", &Session::releasedir);
  add(FUSE_FSYNCDIR, "fsyncdir", &Session::fsyncdir);
  add(FUSE_SYNCFS, "syncfs", &Session::syncfs);
  add(FUSE_IOCTL, "ioctl", &Session::ioctl);
}

// The root of what is mounted has the kernel's number there, whatever its own is.
meta::InodeId Session::inode(uint64_t node) const {
  return node == FUSE_ROOT_ID ? operations_->root() : node;
}

uint64_t Session::node(meta::InodeId inode) const {
  return inode == operations_->root() ? FUSE_ROOT_ID : inode;
}

meta::Caller Session::caller_of(const Request& request) {
  return callers_.caller(request.header.uid, request.header.gid, request.header.pid);
}

fuse_entry_out Session::entry_of(const meta::Inode& inode, int64_t seen_ns) const {
  fuse_entry_out out = {};
  out.nodeid = node(inode.id);
  const int64_t left_ns = seen_ns + kBelievedNs - loop_.now_ns();
  set_valid(left_ns, out.entry_valid, out.entry_valid_nsec);
  set_valid(left_ns, out.attr_valid, out.attr_valid_nsec);
  out.attr = attributes_of(inode);
  return out;
}

Result<Reply> Session::entry_reply(const Result<meta::Inode>& inode) const {
  if (!inode) return inode.error();
  return reply_of(entry_of(*inode, loop_.now_ns()));
}

Reply Session::attributes_reply(const meta::Inode& inode, int64_t seen_ns) const {
  fuse_attr_out out = {};
  set_valid(seen_ns + kBelievedNs - loop_.now_ns(), out.attr_valid, out.attr_valid_nsec);
  out.attr = attributes_of(inode);
  return reply_of(out);
}

Session::Answer Session::lookup(Request& request) {
  FF_CO_TRY(auto name, request.name());
  auto looking = operations_->lookup(caller_of(request), inode_of(request), std::move(name));
  co_return entry_reply(co_await std::move(looking));
}

Session::Answer Session::getattr(Request& request) {
  auto looking = operations_->look(inode_of(request));
  FF_CO_TRY(const auto looked, co_await std::move(looking));
  co_return attributes_reply(looked.inode, looked.seen_ns);
}

Session::Answer Session::setattr(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_setattr_in>());
  Operations::Change change;
  if ((in.valid & FATTR_MODE) != 0) change.to.mode = in.mode & 07777;
  if ((in.valid & FATTR_UID) != 0) change.to.uid = in.uid;
  if ((in.valid & FATTR_GID) != 0) change.to.gid = in.gid;
  if ((in.valid & FATTR_SIZE) != 0) change.length = in.size;
  if ((in.valid & FATTR_FH) != 0) change.handle = in.fh;
  constexpr uint32_t kNow = FATTR_ATIME_NOW | FATTR_MTIME_NOW;
  if ((in.valid & kNow) == kNow) {
    change.to.times_now = true;
  } else if (!change.length) {  // which sets the time of change by itself
    const int64_t now_ns = loop_.clock().wall_ns();
    if ((in.valid & FATTR_ATIME_NOW) != 0) {
      change.to.atime_ns = now_ns;
    } else if ((in.valid & FATTR_ATIME) != 0) {
      change.to.atime_ns = time_of(in.atime, in.atimensec);
    }
    if ((in.valid & FATTR_MTIME_NOW) != 0) {
      change.to.mtime_ns = now_ns;
    } else if ((in.valid & FATTR_MTIME) != 0) {
      change.to.mtime_ns = time_of(in.mtime, in.mtimensec);
    }
  }
  auto changing = operations_->change(caller_of(request), inode_of(request), std::move(change));
  FF_CO_TRY(const auto changed, co_await std::move(changing));
  co_return attributes_reply(changed, loop_.now_ns());
}

Session::Answer Session::readlink(Request& request) {
  auto looking = operations_->look(inode_of(request));
  FF_CO_TRY(auto looked, co_await std::move(looking));
  if (!looked.inode.is(meta::Kind::symlink)) co_return errno_error(EINVAL, "readlink");
  co_return Reply{.bytes = std::move(looked.inode.target)};
}

Session::Answer Session::symlink(Request& request) {
  FF_CO_TRY(auto name, request.name());
  meta::Names::Make make{.kind = meta::Kind::symlink, .mode = 0777};
  FF_CO_TRY(make.target, request.name());
  auto making =
      operations_->make(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

Session::Answer Session::mknod(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_mknod_in>());
  FF_CO_TRY(auto name, request.name());
  const auto kind = kind_of(in.mode);
  if (!kind) co_return errno_error(EINVAL, "mknod");
  meta::Names::Make make{.kind = *kind, .mode = in.mode & 07777};
  if (*kind == meta::Kind::character || *kind == meta::Kind::block) make.device = in.rdev;
  auto making =
      operations_->make(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

Session::Answer Session::mkdir(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_mkdir_in>());
  FF_CO_TRY(auto name, request.name());
  meta::Names::Make make{.kind = meta::Kind::directory, .mode = in.mode & 07777};
  auto making =
      operations_->make(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

Session::Answer Session::unlink(Request& request) {
  FF_CO_TRY(auto name, request.name());
  auto removing = operations_->unlink(caller_of(request), inode_of(request), std::move(name));
  co_return done(co_await std::move(removing));
}

Session::Answer Session::rmdir(Request& request) {
  FF_CO_TRY(auto name, request.name());
  auto removing = operations_->rmdir(caller_of(request), inode_of(request), std::move(name));
  co_return done(co_await std::move(removing));
}

Session::Answer Session::rename_to(Request& request, uint64_t to_dir, uint32_t flags) {
  if ((flags & ~(kRenameNoReplace | kRenameExchange)) != 0) {
    co_return errno_error(EINVAL, "renameat2");
  }
  Operations::Rename how{.from_dir = inode_of(request), .to_dir = inode(to_dir)};
  how.no_replace = (flags & kRenameNoReplace) != 0;
  how.exchange = (flags & kRenameExchange) != 0;
  FF_CO_TRY(how.from, request.name());
  FF_CO_TRY(how.to, request.name());
  auto renaming = operations_->rename(caller_of(request), std::move(how));
  co_return done(co_await std::move(renaming));
}

Session::Answer Session::rename(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_rename_in>());
  auto renaming = rename_to(request, in.newdir, 0);
  co_return co_await std::move(renaming);
}

Session::Answer Session::rename2(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_rename2_in>());
  auto renaming = rename_to(request, in.newdir, in.flags);
  co_return co_await std::move(renaming);
}

Session::Answer Session::link(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_link_in>());
  FF_CO_TRY(auto name, request.name());
  auto linking = operations_->link(caller_of(request), inode(in.oldnodeid), inode_of(request),
                                   std::move(name));
  co_return entry_reply(co_await std::move(linking));
}

Session::Answer Session::open(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_open_in>());
  const bool cached =
      virtual_dir_ == nullptr || virtual_dir_->settings(request.header.uid).read_cache;
  const uint32_t flags = in.flags | (cached ? 0 : O_DIRECT);
  auto opening = operations_->open(caller_of(request), inode_of(request), flags);
  FF_CO_TRY(const auto opened, co_await std::move(opening));
  fuse_open_out out = {};
  out.fh = opened.handle;
  out.open_flags = flags_of(opened, writes(in.flags));
  co_return reply_of(out);
}

Session::Answer Session::create(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_create_in>());
  FF_CO_TRY(auto name, request.name());
  auto creating = operations_->create(caller_of(request), inode_of(request), std::move(name),
                                      in.mode & 07777, in.flags);
  FF_CO_TRY(const auto created, co_await std::move(creating));
  Reply reply = reply_of(entry_of(created.inode, loop_.now_ns()));
  fuse_open_out out = {};
  out.fh = created.opened.handle;
  out.open_flags = flags_of(created.opened, writes(in.flags));
  append_struct(reply.bytes, out);
  co_return reply;
}

Session::Answer Session::read(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_read_in>());
  const uint64_t size = std::min<uint64_t>(in.size, kWriteMax);
  auto reading = operations_->read(in.fh, in.offset, size);
  FF_CO_TRY(auto data, co_await std::move(reading));
  read_bytes_.add(data.size);
  Reply reply;
  reply.data = data.view();
  reply.memory = std::move(data.memory);
  co_return reply;
}

Session::Answer Session::write(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_write_in>());
  if (in.size != request.payload.size()) co_return errno_error(EIO, "a write of the kernel");
  Operations::Write how{.offset = in.offset,
                        .from = request.payload,
                        .keeper = request.keeper,
                        .flags = in.flags,
                        .drop_set_ids = (in.write_flags & FUSE_WRITE_KILL_SUIDGID) != 0,
                        .from_pages = (in.write_flags & FUSE_WRITE_CACHE) != 0};
  auto writing = operations_->write(in.fh, std::move(how));
  FF_CO_TRY(co_await std::move(writing));
  written_bytes_.add(in.size);
  fuse_write_out out = {};
  out.size = in.size;
  co_return reply_of(out);
}

Session::Answer Session::flush(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_flush_in>());
  auto flushing = operations_->flush(in.fh);
  co_return done(co_await std::move(flushing));
}

Session::Answer Session::release(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_release_in>());
  auto releasing = operations_->release(in.fh);
  co_await std::move(releasing);
  co_return Reply();
}

Session::Answer Session::fsync(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_fsync_in>());
  auto syncing = operations_->sync(in.fh);
  co_return done(co_await std::move(syncing));
}

Session::Answer Session::fallocate(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_fallocate_in>());
  auto allocating = operations_->allocate(in.fh, static_cast<int>(in.mode), in.offset, in.length);
  co_return done(co_await std::move(allocating));
}

Session::Answer Session::lseek(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_lseek_in>());
  auto seeking = operations_->seek(in.fh, in.offset, static_cast<int>(in.whence));
  FF_CO_TRY(const uint64_t at, co_await std::move(seeking));
  fuse_lseek_out out = {};
  out.offset = at;
  co_return reply_of(out);
}

Session::Answer Session::statfs(Request&) {
  auto asking = operations_->files().space();
  FF_CO_TRY(const auto space, co_await std::move(asking));
  fuse_statfs_out out = {};
  out.st.blocks = space.total / kBlock;
  out.st.bfree = space.free / kBlock;
  out.st.bavail = out.st.bfree;
  out.st.bsize = kBlock;
  out.st.frsize = kBlock;
  out.st.namelen = meta::kNameMax;
  co_return reply_of(out);
}

Session::Answer Session::setxattr(Request& request) {
  struct In {  // fuse_setxattr_in without FUSE_SETXATTR_EXT
    uint32_t size;
    uint32_t flags;
  };
  FF_CO_TRY(const auto in, request.take<In>());
  FF_CO_TRY(auto name, request.name());
  std::string value(request.rest().substr(0, in.size));
  const auto mode = (in.flags & kXattrCreate) != 0    ? meta::Names::XattrMode::create
                    : (in.flags & kXattrReplace) != 0 ? meta::Names::XattrMode::replace
                                                      : meta::Names::XattrMode::any;
  auto setting = operations_->set_xattr(caller_of(request), inode_of(request), std::move(name),
                                        std::move(value), mode);
  co_return done(co_await std::move(setting));
}

namespace {

// The value, or how long it is for who has no room yet.
Result<Reply> sized_reply(std::string value, uint32_t room) {
  if (room == 0) {
    fuse_getxattr_out out = {};
    out.size = static_cast<uint32_t>(value.size());
    return reply_of(out);
  }
  if (value.size() > room) return errno_error(ERANGE, "getxattr");
  return Reply{.bytes = std::move(value)};
}

}  // namespace

Session::Answer Session::getxattr(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_getxattr_in>());
  FF_CO_TRY(auto name, request.name());
  // The kernel asks for those by itself, often.
  if (name.starts_with("security.") || name.starts_with("system.")) {
    co_return errno_error(EOPNOTSUPP, "getxattr");
  }
  auto asking = operations_->get_xattr(caller_of(request), inode_of(request), std::move(name));
  FF_CO_TRY(auto value, co_await std::move(asking));
  co_return sized_reply(std::move(value), in.size);
}

Session::Answer Session::listxattr(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_getxattr_in>());
  auto asking = operations_->list_xattrs(inode_of(request));
  FF_CO_TRY(const auto names, co_await std::move(asking));
  std::string all;
  for (const std::string& name : names) all.append(name).push_back('\0');
  co_return sized_reply(std::move(all), in.size);
}

Session::Answer Session::removexattr(Request& request) {
  FF_CO_TRY(auto name, request.name());
  auto setting = operations_->set_xattr(caller_of(request), inode_of(request), std::move(name),
                                        std::nullopt, meta::Names::XattrMode::replace);
  co_return done(co_await std::move(setting));
}

Session::Answer Session::opendir(Request& request) {
  auto opening = operations_->open_dir(caller_of(request), inode_of(request));
  FF_CO_TRY(const uint64_t handle, co_await std::move(opening));
  fuse_open_out out = {};
  out.fh = handle;
  co_return reply_of(out);
}

// False: there is no room for it any more.
bool Session::add_entry(std::string& out, const Directory::Entry& entry, bool plus, size_t room) {
  const auto& listed = entry.listed;
  const size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
  const size_t size = FUSE_REC_ALIGN(head + listed.name.size());
  if (out.size() + size > room) return false;
  const size_t end = out.size() + size;
  if (plus) {
    fuse_entry_out known = {};
    if (listed.seen) {
      meta::Seen seen = *listed.seen;
      operations_->files().add_written(seen.inode);
      operations_->nodes().named(seen);
      known = entry_of(seen.inode, entry.seen_ns);
    }
    append_struct(out, known);
  }
  append_struct(out, fuse_dirent{.ino = listed.id,
                                 .off = entry.position + 1,
                                 .namelen = static_cast<uint32_t>(listed.name.size()),
                                 .type = type_of(listed.kind) >> 12});
  out.append(listed.name);
  out.resize(end);
  return true;
}

Session::Answer Session::list(Request& request, bool plus) {
  FF_CO_TRY(const auto in, request.take<fuse_read_in>());
  const auto directory = operations_->directory(in.fh);
  if (directory == nullptr) co_return handle_not_open();
  auto reading = directory->read(in.offset);
  FF_CO_TRY(const auto entries, co_await std::move(reading));
  Reply reply;
  for (const Directory::Entry* const entry : entries) {
    if (!add_entry(reply.bytes, *entry, plus, in.size)) break;
  }
  co_return reply;
}

Session::Answer Session::readdir(Request& request) { return list(request, false); }

Session::Answer Session::readdirplus(Request& request) { return list(request, true); }

Session::Answer Session::releasedir(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_release_in>());
  operations_->release_dir(in.fh);
  co_return Reply();
}

Session::Answer Session::fsyncdir(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_fsync_in>());
  auto syncing = operations_->sync_dir(in.fh);
  co_return done(co_await std::move(syncing));
}

Session::Answer Session::syncfs(Request&) {
  auto syncing = operations_->sync_all();
  co_return done(co_await std::move(syncing));
}

}  // namespace ff::mount

// fuse_session_calls.cc: one handler for each kind of FUSE request.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "storage/mount/fuse_session.h"

namespace ff::mount {

namespace {

constexpr uint32_t kRenameNoReplace = 1;  // linux/fs.h
constexpr uint32_t kRenameExchange = 2;
constexpr uint32_t kXattrCreate = 1;  // sys/xattr.h
constexpr uint32_t kXattrReplace = 2;
constexpr uint64_t kBlock = 4 * kKiB;  // of statfs(2)

Result<FuseReply> done(const Result<void>& result) {
  if (!result) return result.error();
  return FuseReply();
}

Error handle_not_open() { return errno_error(EBADF, "a handle"); }

// The remaining cache timeout of something fetched earlier.
void set_valid(int64_t left_ns, uint64_t& seconds, uint32_t& ns) {
  left_ns = std::max<int64_t>(left_ns, 0);
  seconds = static_cast<uint64_t>(left_ns / kSecond);
  ns = static_cast<uint32_t>(left_ns % kSecond);
}

uint32_t flags_of(const Operations::Opened& opened, bool writes) {
  uint32_t flags = 0;
  if (opened.direct) flags |= FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
  if (opened.keep_cache) flags |= FOPEN_KEEP_CACHE;
  if (!writes) flags |= FOPEN_NOFLUSH;
  return flags;
}

bool writes(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY; }

}  // namespace

void FuseSession::register_handlers() {
  const auto add = [this](uint32_t opcode, const char* name, Handler handler) {
    calls_[opcode] = {handler, name, nullptr};
  };
  add(FUSE_LOOKUP, "lookup", &FuseSession::lookup);
  add(FUSE_GETATTR, "getattr", &FuseSession::getattr);
  add(FUSE_SETATTR, "setattr", &FuseSession::setattr);
  add(FUSE_READLINK, "readlink", &FuseSession::readlink);
  add(FUSE_SYMLINK, "symlink", &FuseSession::symlink);
  add(FUSE_MKNOD, "mknod", &FuseSession::mknod);
  add(FUSE_MKDIR, "mkdir", &FuseSession::mkdir);
  add(FUSE_UNLINK, "unlink", &FuseSession::unlink);
  add(FUSE_RMDIR, "rmdir", &FuseSession::rmdir);
  add(FUSE_RENAME, "rename", &FuseSession::rename);
  add(FUSE_RENAME2, "rename2", &FuseSession::rename2);
  add(FUSE_LINK, "link", &FuseSession::link);
  add(FUSE_OPEN, "open", &FuseSession::open);
  add(FUSE_CREATE, "create", &FuseSession::create);
  add(FUSE_READ, "read", &FuseSession::read);
  add(FUSE_WRITE, "write", &FuseSession::write);
  add(FUSE_FLUSH, "flush", &FuseSession::flush);
  add(FUSE_RELEASE, "release", &FuseSession::release);
  add(FUSE_FSYNC, "fsync", &FuseSession::fsync);
  add(FUSE_FALLOCATE, "fallocate", &FuseSession::fallocate);
  add(FUSE_LSEEK, "lseek", &FuseSession::lseek);
  add(FUSE_STATFS, "statfs", &FuseSession::statfs);
  add(FUSE_SETXATTR, "setxattr", &FuseSession::setxattr);
  add(FUSE_GETXATTR, "getxattr", &FuseSession::getxattr);
  add(FUSE_LISTXATTR, "listxattr", &FuseSession::listxattr);
  add(FUSE_REMOVEXATTR, "removexattr", &FuseSession::removexattr);
  add(FUSE_OPENDIR, "opendir", &FuseSession::opendir);
  add(FUSE_READDIR, "readdir", &FuseSession::readdir);
  add(FUSE_READDIRPLUS, "readdirplus", &FuseSession::readdirplus);
  add(FUSE_RELEASEDIR, "releasedir", &FuseSession::releasedir);
  add(FUSE_FSYNCDIR, "fsyncdir", &FuseSession::fsyncdir);
  add(FUSE_SYNCFS, "syncfs", &FuseSession::syncfs);
  add(FUSE_IOCTL, "ioctl", &FuseSession::ioctl);
}

// The mounted directory has the node id FUSE_ROOT_ID, whatever its inode number is.
meta::InodeId FuseSession::inode(uint64_t nodeid) const {
  return nodeid == FUSE_ROOT_ID ? operations_->root() : nodeid;
}

uint64_t FuseSession::nodeid(meta::InodeId inode) const {
  return inode == operations_->root() ? FUSE_ROOT_ID : inode;
}

meta::Caller FuseSession::caller_of(const FuseRequest& request) {
  meta::Caller caller = callers_.caller(request.header.uid, request.header.gid, request.header.pid);
  caller.origin = operations_->origin_of(request.header.unique);
  return caller;
}

fuse_entry_out FuseSession::entry_of(const meta::Inode& inode, int64_t fetched_ns) const {
  fuse_entry_out out = {};
  out.nodeid = nodeid(inode.id);
  const int64_t left_ns = fetched_ns + kCacheTimeoutNs - loop_.now_ns();
  set_valid(left_ns, out.entry_valid, out.entry_valid_nsec);
  set_valid(left_ns, out.attr_valid, out.attr_valid_nsec);
  out.attr = attributes_of(inode);
  return out;
}

Result<FuseReply> FuseSession::entry_reply(const Result<meta::Inode>& inode) const {
  if (!inode) return inode.error();
  return reply_of(entry_of(*inode, loop_.now_ns()));
}

FuseReply FuseSession::attributes_reply(const meta::Inode& inode, int64_t fetched_ns) const {
  fuse_attr_out out = {};
  set_valid(fetched_ns + kCacheTimeoutNs - loop_.now_ns(), out.attr_valid, out.attr_valid_nsec);
  out.attr = attributes_of(inode);
  return reply_of(out);
}

FuseSession::ReplyTask FuseSession::lookup(FuseRequest& request) {
  FF_CO_TRY(auto name, request.name());
  auto looking = operations_->lookup(caller_of(request), inode_of(request), std::move(name));
  co_return entry_reply(co_await std::move(looking));
}

FuseSession::ReplyTask FuseSession::getattr(FuseRequest& request) {
  FF_CO_TRY(const auto looked, co_await operations_->getattr(inode_of(request)));
  co_return attributes_reply(looked.inode, looked.fetched_ns);
}

FuseSession::ReplyTask FuseSession::setattr(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_setattr_in>());
  Operations::SetAttributes change;
  if ((in.valid & FATTR_MODE) != 0) change.to.mode = in.mode & 07777;
  if ((in.valid & FATTR_UID) != 0) change.to.uid = in.uid;
  if ((in.valid & FATTR_GID) != 0) change.to.gid = in.gid;
  if ((in.valid & FATTR_SIZE) != 0) change.length = in.size;
  if ((in.valid & FATTR_FH) != 0) change.handle = in.fh;
  constexpr uint32_t kNoAttribute = FATTR_FH | FATTR_LOCKOWNER | FATTR_CTIME;
  change.drop_set_ids = (in.valid & FATTR_KILL_SUIDGID) != 0 || (in.valid & ~kNoAttribute) == 0;
  constexpr uint32_t kNow = FATTR_ATIME_NOW | FATTR_MTIME_NOW;
  if ((in.valid & kNow) == kNow) {
    change.to.times_now = true;
  } else if (!change.length) {  // a truncation sets the times by itself
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
  FF_CO_TRY(const auto changed, co_await operations_->setattr(caller_of(request), inode_of(request),
                                                              std::move(change)));
  co_return attributes_reply(changed, loop_.now_ns());
}

FuseSession::ReplyTask FuseSession::readlink(FuseRequest& request) {
  FF_CO_TRY(auto looked, co_await operations_->getattr(inode_of(request)));
  if (!looked.inode.is(meta::InodeType::symlink)) co_return errno_error(EINVAL, "readlink");
  co_return FuseReply{.bytes = std::move(looked.inode.target)};
}

FuseSession::ReplyTask FuseSession::symlink(FuseRequest& request) {
  FF_CO_TRY(auto name, request.name());
  meta::Namespace::CreateOptions make{.kind = meta::InodeType::symlink, .mode = 0777};
  FF_CO_TRY(make.target, request.name());
  auto making =
      operations_->mknod(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

FuseSession::ReplyTask FuseSession::mknod(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_mknod_in>());
  FF_CO_TRY(auto name, request.name());
  const auto kind = kind_of(in.mode);
  if (!kind) co_return errno_error(EINVAL, "mknod");
  meta::Namespace::CreateOptions make{.kind = *kind, .mode = in.mode & 07777};
  if (*kind == meta::InodeType::character || *kind == meta::InodeType::block) make.device = in.rdev;
  auto making =
      operations_->mknod(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

FuseSession::ReplyTask FuseSession::mkdir(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_mkdir_in>());
  FF_CO_TRY(auto name, request.name());
  meta::Namespace::CreateOptions make{.kind = meta::InodeType::directory, .mode = in.mode & 07777};
  auto making =
      operations_->mknod(caller_of(request), inode_of(request), std::move(name), std::move(make));
  co_return entry_reply(co_await std::move(making));
}

FuseSession::ReplyTask FuseSession::unlink(FuseRequest& request) {
  FF_CO_TRY(auto name, request.name());
  auto removing = operations_->unlink(caller_of(request), inode_of(request), std::move(name));
  co_return done(co_await std::move(removing));
}

FuseSession::ReplyTask FuseSession::rmdir(FuseRequest& request) {
  FF_CO_TRY(auto name, request.name());
  auto removing = operations_->rmdir(caller_of(request), inode_of(request), std::move(name));
  co_return done(co_await std::move(removing));
}

FuseSession::ReplyTask FuseSession::rename_to(FuseRequest& request, uint64_t to_dir,
                                              uint32_t flags) {
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

FuseSession::ReplyTask FuseSession::rename(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_rename_in>());
  co_return co_await rename_to(request, in.newdir, 0);
}

FuseSession::ReplyTask FuseSession::rename2(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_rename2_in>());
  co_return co_await rename_to(request, in.newdir, in.flags);
}

FuseSession::ReplyTask FuseSession::link(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_link_in>());
  FF_CO_TRY(auto name, request.name());
  auto linking = operations_->link(caller_of(request), inode(in.oldnodeid), inode_of(request),
                                   std::move(name));
  co_return entry_reply(co_await std::move(linking));
}

FuseSession::ReplyTask FuseSession::open(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_open_in>());
  const bool cached =
      virtual_dir_ == nullptr || virtual_dir_->settings(request.header.uid).read_cache;
  const uint32_t flags = in.flags | (cached ? 0 : O_DIRECT);
  const auto before = operations_->unanswered(operations_->origin_of(request.header.unique));
  Operations::Opened opened = before ? before->opened : Operations::Opened();
  if (!before) {
    FF_CO_TRY(opened, co_await operations_->open(caller_of(request), inode_of(request), flags));
  }
  fuse_open_out out = {};
  out.fh = opened.handle;
  out.open_flags = flags_of(opened, writes(in.flags));
  co_return reply_of(out);
}

FuseSession::ReplyTask FuseSession::create(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_create_in>());
  FF_CO_TRY(auto name, request.name());
  const auto before = operations_->unanswered(operations_->origin_of(request.header.unique));
  Operations::Created created;
  if (before) {
    FF_CO_TRY(auto looked, co_await operations_->getattr(before->inode));
    created = {.inode = std::move(looked.inode), .opened = before->opened};
  } else {
    FF_CO_TRY(created, co_await operations_->create(caller_of(request), inode_of(request),
                                                    std::move(name), in.mode & 07777, in.flags));
  }
  FuseReply reply = reply_of(entry_of(created.inode, loop_.now_ns()));
  fuse_open_out out = {};
  out.fh = created.opened.handle;
  out.open_flags = flags_of(created.opened, writes(in.flags));
  append_struct(reply.bytes, out);
  co_return reply;
}

FuseSession::ReplyTask FuseSession::read(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_read_in>());
  const uint64_t size = std::min<uint64_t>(in.size, kWriteMax);
  FF_CO_TRY(auto data, co_await operations_->read(in.fh, in.offset, size, request.reply_room));
  reads_.bytes.add(data.bytes.size());
  FuseReply reply;
  reply.data = data.bytes;
  reply.memory = std::move(data.memory);
  co_return reply;
}

FuseSession::ReplyTask FuseSession::write(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_write_in>());
  if (in.size != request.payload.size()) co_return errno_error(EIO, "a write of the kernel");
  Operations::Write how{.offset = in.offset,
                        .from = request.payload,
                        .buffer_owner = request.buffer_owner,
                        .flags = in.flags,
                        .drop_set_ids = (in.write_flags & FUSE_WRITE_KILL_SUIDGID) != 0,
                        .from_page_cache = (in.write_flags & FUSE_WRITE_CACHE) != 0,
                        .origin = operations_->origin_of(request.header.unique)};
  FF_CO_TRY(co_await operations_->write(in.fh, std::move(how)));
  written_bytes_.add(in.size);
  fuse_write_out out = {};
  out.size = in.size;
  co_return reply_of(out);
}

FuseSession::ReplyTask FuseSession::flush(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_flush_in>());
  auto flushing = operations_->flush(in.fh);
  co_return done(co_await std::move(flushing));
}

FuseSession::ReplyTask FuseSession::release(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_release_in>());
  co_await operations_->release(in.fh);
  co_return FuseReply();
}

FuseSession::ReplyTask FuseSession::fsync(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_fsync_in>());
  auto syncing = operations_->sync(in.fh);
  co_return done(co_await std::move(syncing));
}

FuseSession::ReplyTask FuseSession::fallocate(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_fallocate_in>());
  auto allocating = operations_->allocate(in.fh, static_cast<int>(in.mode), in.offset, in.length);
  co_return done(co_await std::move(allocating));
}

FuseSession::ReplyTask FuseSession::lseek(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_lseek_in>());
  FF_CO_TRY(const uint64_t at,
            co_await operations_->seek(in.fh, in.offset, static_cast<int>(in.whence)));
  fuse_lseek_out out = {};
  out.offset = at;
  co_return reply_of(out);
}

FuseSession::ReplyTask FuseSession::statfs(FuseRequest&) {
  FF_CO_TRY(const auto space, co_await operations_->files().space());
  fuse_statfs_out out = {};
  out.st.blocks = space.total / kBlock;
  out.st.bfree = space.free / kBlock;
  out.st.bavail = out.st.bfree;
  out.st.bsize = kBlock;
  out.st.frsize = kBlock;
  out.st.namelen = meta::kNameMax;
  co_return reply_of(out);
}

FuseSession::ReplyTask FuseSession::setxattr(FuseRequest& request) {
  struct In {  // fuse_setxattr_in without FUSE_SETXATTR_EXT
    uint32_t size;
    uint32_t flags;
  };
  FF_CO_TRY(const auto in, request.read_struct<In>());
  FF_CO_TRY(auto name, request.name());
  std::string value(request.rest().substr(0, in.size));
  const auto mode = (in.flags & kXattrCreate) != 0    ? meta::Namespace::XattrMode::create
                    : (in.flags & kXattrReplace) != 0 ? meta::Namespace::XattrMode::replace
                                                      : meta::Namespace::XattrMode::any;
  auto setting = operations_->set_xattr(caller_of(request), inode_of(request), std::move(name),
                                        std::move(value), mode);
  co_return done(co_await std::move(setting));
}

namespace {

// The value, or its size if the caller passes no buffer.
Result<FuseReply> sized_reply(std::string value, uint32_t room) {
  if (room == 0) {
    fuse_getxattr_out out = {};
    out.size = static_cast<uint32_t>(value.size());
    return reply_of(out);
  }
  if (value.size() > room) return errno_error(ERANGE, "getxattr");
  return FuseReply{.bytes = std::move(value)};
}

}  // namespace

FuseSession::ReplyTask FuseSession::getxattr(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_getxattr_in>());
  FF_CO_TRY(auto name, request.name());
  FF_CO_TRY(auto value, co_await operations_->get_xattr(caller_of(request), inode_of(request),
                                                        std::move(name)));
  co_return sized_reply(std::move(value), in.size);
}

FuseSession::ReplyTask FuseSession::listxattr(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_getxattr_in>());
  FF_CO_TRY(const auto names, co_await operations_->list_xattrs(inode_of(request)));
  std::string all;
  for (const std::string& name : names) all.append(name).push_back('\0');
  co_return sized_reply(std::move(all), in.size);
}

FuseSession::ReplyTask FuseSession::removexattr(FuseRequest& request) {
  FF_CO_TRY(auto name, request.name());
  auto setting = operations_->set_xattr(caller_of(request), inode_of(request), std::move(name),
                                        std::nullopt, meta::Namespace::XattrMode::replace);
  co_return done(co_await std::move(setting));
}

FuseSession::ReplyTask FuseSession::opendir(FuseRequest& request) {
  const auto before = operations_->unanswered(operations_->origin_of(request.header.unique));
  uint64_t handle = before ? before->opened.handle : 0;
  if (!before) {
    FF_CO_TRY(handle, co_await operations_->open_dir(caller_of(request), inode_of(request)));
  }
  fuse_open_out out = {};
  out.fh = handle;
  co_return reply_of(out);
}

// False: the entry does not fit any more.
bool FuseSession::add_entry(std::string& out, const DirectoryHandle::Entry& entry, bool plus,
                            size_t room) {
  const auto& listed = entry.listed;
  const size_t head = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
  const size_t size = FUSE_REC_ALIGN(head + listed.name.size());
  if (out.size() + size > room) return false;
  const size_t end = out.size() + size;
  if (plus) {
    fuse_entry_out known = {};
    if (listed.view) {
      meta::InodeView view = *listed.view;
      operations_->files().apply_local_writes(view.inode);
      operations_->inodes().add_lookup(view);
      known = entry_of(view.inode, entry.fetched_ns);
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

FuseSession::ReplyTask FuseSession::list(FuseRequest& request, bool plus) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_read_in>());
  const auto directory = operations_->directory(in.fh);
  if (directory == nullptr) co_return handle_not_open();
  FF_CO_TRY(const auto entries, co_await directory->read(in.offset, plus));
  FuseReply reply;
  const DirectoryHandle::Entry* last = nullptr;
  for (const DirectoryHandle::Entry* const entry : entries) {
    if (!add_entry(reply.bytes, *entry, plus, in.size)) break;
    last = entry;
  }
  if (last != nullptr) operations_->on_listed(in.fh, *last);
  co_return reply;
}

FuseSession::ReplyTask FuseSession::readdir(FuseRequest& request) { return list(request, false); }

FuseSession::ReplyTask FuseSession::readdirplus(FuseRequest& request) {
  return list(request, true);
}

FuseSession::ReplyTask FuseSession::releasedir(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_release_in>());
  operations_->release_dir(in.fh);
  co_return FuseReply();
}

FuseSession::ReplyTask FuseSession::fsyncdir(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_fsync_in>());
  auto syncing = operations_->sync_dir(in.fh);
  co_return done(co_await std::move(syncing));
}

FuseSession::ReplyTask FuseSession::syncfs(FuseRequest&) {
  auto syncing = operations_->sync_all();
  co_return done(co_await std::move(syncing));
}

}  // namespace ff::mount

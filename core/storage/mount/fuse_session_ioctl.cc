// fuse_session_ioctl.cc: the ioctls of programs written for 3FS (usrbio/ioctls.h). The kernel
// copies as many bytes as the ioctl number says, whatever its direction.
#include <linux/falloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "storage/client/walk.h"
#include "storage/mount/fuse_session.h"
#include "storage/usrbio/ioctls.h"

namespace ff::mount {

namespace {

using usrbio::Ioctl;

Result<FuseReply> ioctl_reply(std::string_view bytes) {
  fuse_ioctl_out out = {};
  FuseReply reply = reply_of(out);
  reply.bytes.append(bytes);
  return reply;
}

template <class T>
Result<FuseReply> ioctl_reply_of(const T& value) {
  std::string bytes;
  append_struct(bytes, value);
  return ioctl_reply(bytes);
}

Result<std::string> name_of(const char (&name)[usrbio::kNameBytes]) {
  const size_t size = ::strnlen(name, sizeof name);
  if (size == 0 || size == sizeof name) return errno_error(EINVAL, "a name in an ioctl");
  return std::string(name, size);
}

struct Number {
  unsigned type = 0;
  Ioctl what = Ioctl::mount_name;
  size_t size = 0;
};
Number number_of(uint32_t cmd) {
  return {.type = _IOC_TYPE(cmd), .what = static_cast<Ioctl>(_IOC_NR(cmd)), .size = _IOC_SIZE(cmd)};
}

}  // namespace

FuseSession::ReplyTask FuseSession::ioctl(FuseRequest& request) {
  FF_CO_TRY(const auto in, request.read_struct<fuse_ioctl_in>());
  const Number number = number_of(in.cmd);
  const Error unknown = errno_error(ENOTTY, "ioctl");
  if ((in.flags & FUSE_IOCTL_COMPAT) != 0) co_return errno_error(ENOSYS, "ioctl");
  if (number.type != usrbio::kIoctlType) co_return unknown;
  const auto is = [&](Ioctl what, size_t size) {
    return number.what == what && number.size == size;
  };
  if (is(Ioctl::mount_name, usrbio::kMountNameBytes)) {
    std::array<char, usrbio::kMountNameBytes> name = {};
    std::copy_n(options_.name.data(), std::min(options_.name.size(), name.size() - 1), name.data());
    co_return ioctl_reply_of(name);
  }
  if (is(Ioctl::path_offset, 4))
    co_return ioctl_reply_of(static_cast<uint32_t>(device_.dir().size()));
  if (is(Ioctl::magic, 4)) co_return ioctl_reply_of(usrbio::kMagic);
  if (is(Ioctl::version, 4)) co_return ioctl_reply_of(usrbio::kInterfaceVersion);
  Task<Result<void>> task = [](Error error) -> Task<Result<void>> { co_return error; }(unknown);
  if (is(Ioctl::remove_tree, 4)) task = remove_open_tree(caller_of(request), inode_of(request));
  if (is(Ioctl::sync, 4)) task = operations_->sync(in.fh);
  if (is(Ioctl::link, sizeof(usrbio::LinkArgs))) task = ioctl_link(request);
  if (is(Ioctl::punch, sizeof(usrbio::PunchHoleArgs))) task = ioctl_punch_hole(request, in.fh);
  if (is(Ioctl::move, sizeof(usrbio::MoveArgs))) task = ioctl_move(request);
  if (is(Ioctl::remove, sizeof(usrbio::RemoveArgs))) task = ioctl_remove(request);
  FF_CO_TRY(co_await std::move(task));
  co_return ioctl_reply({});
}

// A directory knows its parent; the parent is searched for the name.
Task<Result<void>> FuseSession::remove_open_tree(meta::Caller caller, meta::InodeId inode) {
  FF_CO_TRY(const auto looked, co_await operations_->getattr(inode));
  const meta::Inode& dir = looked.inode;
  if (!dir.is(meta::InodeType::directory)) co_return errno_error(ENOTDIR, "ioctl");
  if (inode == operations_->root()) co_return errno_error(EBUSY, "ioctl");
  client::DirLister listing(operations_->files().metadata(), caller,
                            meta::InodeRef{.id = dir.parent}, false);
  for (;;) {
    FF_CO_TRY(auto listed, co_await listing.next());
    if (!listed) co_return errno_error(ENOENT, "ioctl");
    if (listed->id != inode) continue;
    co_return co_await operations_->remove_tree(caller, dir.parent, listed->name);
  }
}

// Only the owner may link an inode by number alone; others have link(2).
Task<Result<void>> FuseSession::ioctl_link(FuseRequest& request) {
  FF_CO_TRY(const auto args, request.read_struct<usrbio::LinkArgs>());
  FF_CO_TRY(std::string name, name_of(args.name));
  const meta::Caller caller = caller_of(request);
  FF_CO_TRY(const auto looked, co_await operations_->getattr(args.inode));
  if (!caller.is_root() && looked.inode.uid != caller.uid) co_return errno_error(EPERM, "ioctl");
  FF_CO_TRY(co_await operations_->link(caller, args.inode, inode_of(request), std::move(name)));
  operations_->forget(args.inode, 1);  // the kernel did not get the inode
  co_return Result<void>();
}

Task<Result<void>> FuseSession::ioctl_punch_hole(FuseRequest& request, uint64_t handle) {
  const auto args = std::make_unique<usrbio::PunchHoleArgs>();
  FF_CO_TRY(*args, request.read_struct<usrbio::PunchHoleArgs>());
  if (args->n < 0 || args->n > usrbio::kPunchHoleMax) co_return errno_error(EINVAL, "ioctl");
  for (int i = 0; i < args->n; i++) {
    const size_t start = args->start[i];
    const size_t end = args->end[i];
    if (end < start || end > INT64_MAX) co_return errno_error(EINVAL, "ioctl");
    if (end == start) continue;
    constexpr int kHow = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    FF_CO_TRY(co_await operations_->allocate(handle, kHow, start, end - start));
  }
  co_return Result<void>();
}

Task<Result<void>> FuseSession::ioctl_move(FuseRequest& request) {
  FF_CO_TRY(const auto args, request.read_struct<usrbio::MoveArgs>());
  Operations::Rename how{.from_dir = args.from_dir, .to_dir = args.to_dir};
  FF_CO_TRY(how.from, name_of(args.from));
  FF_CO_TRY(how.to, name_of(args.to));
  co_return co_await operations_->rename(caller_of(request), std::move(how));
}

Task<Result<void>> FuseSession::ioctl_remove(FuseRequest& request) {
  FF_CO_TRY(const auto args, request.read_struct<usrbio::RemoveArgs>());
  FF_CO_TRY(std::string name, name_of(args.name));
  const meta::Caller caller = caller_of(request);
  if (args.recursive) {
    auto removed = co_await operations_->remove_tree(caller, args.dir, name);
    if (removed || removed.error().sys != ENOTDIR) co_return removed;
  }
  auto unlinked = co_await operations_->unlink(caller, args.dir, name);
  if (unlinked || unlinked.error().sys != EISDIR) co_return unlinked;
  co_return co_await operations_->rmdir(caller, args.dir, std::move(name));
}

}  // namespace ff::mount

// session_ioctl.cc: what programs made for 3FS ask of files and directories by ioctl(2)
// (usrbio/ioctls.h). The kernel hands over what the number says is carried, whatever its direction.
#include <linux/falloc.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "storage/client/walk.h"
#include "storage/mount/session.h"
#include "storage/usrbio/ioctls.h"

namespace ff::mount {

namespace {

using usrbio::Ioctl;

Result<Reply> ioctl_reply(std::string_view bytes) {
  fuse_ioctl_out out = {};
  Reply reply = reply_of(out);
  reply.bytes.append(bytes);
  return reply;
}

template <class T>
Result<Reply> ioctl_reply_of(const T& value) {
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

Session::Answer Session::ioctl(Request& request) {
  FF_CO_TRY(const auto in, request.take<fuse_ioctl_in>());
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
  if (is(Ioctl::link, sizeof(usrbio::LinkOrder))) task = link_order(request);
  if (is(Ioctl::punch, sizeof(usrbio::PunchOrder))) task = punch_order(request, in.fh);
  if (is(Ioctl::move, sizeof(usrbio::MoveOrder))) task = move_order(request);
  if (is(Ioctl::remove, sizeof(usrbio::RemoveOrder))) task = remove_order(request);
  FF_CO_TRY(co_await std::move(task));
  co_return ioctl_reply({});
}

// A directory knows its parent, and the parent the name.
Task<Result<void>> Session::remove_open_tree(meta::Caller caller, meta::InodeId inode) {
  auto looking = operations_->look(inode);
  FF_CO_TRY(const auto looked, co_await std::move(looking));
  const meta::Inode& dir = looked.inode;
  if (!dir.is(meta::Kind::directory)) co_return errno_error(ENOTDIR, "ioctl");
  if (inode == operations_->root()) co_return errno_error(EBUSY, "ioctl");
  client::Listing listing(operations_->files().names(), caller, meta::Ref{.id = dir.parent}, false);
  for (;;) {
    auto next = listing.next();
    FF_CO_TRY(auto listed, co_await std::move(next));
    if (!listed) co_return errno_error(ENOENT, "ioctl");
    if (listed->id != inode) continue;
    auto removing = operations_->remove_tree(caller, dir.parent, listed->name);
    co_return co_await std::move(removing);
  }
}

// By its number alone an inode is only to be had by its owner: whoever else may reach it by a name
// has link(2).
Task<Result<void>> Session::link_order(Request& request) {
  FF_CO_TRY(const auto order, request.take<usrbio::LinkOrder>());
  FF_CO_TRY(std::string name, name_of(order.name));
  const meta::Caller caller = caller_of(request);
  auto looking = operations_->look(order.inode);
  FF_CO_TRY(const auto looked, co_await std::move(looking));
  if (!caller.root() && looked.inode.uid != caller.uid) co_return errno_error(EPERM, "ioctl");
  auto linking = operations_->link(caller, order.inode, inode_of(request), std::move(name));
  FF_CO_TRY(co_await std::move(linking));
  operations_->forget(order.inode, 1);  // the kernel was not told of a name
  co_return Result<void>();
}

Task<Result<void>> Session::punch_order(Request& request, uint64_t handle) {
  const auto order = std::make_unique<usrbio::PunchOrder>();
  FF_CO_TRY(*order, request.take<usrbio::PunchOrder>());
  if (order->n < 0 || order->n > usrbio::kPunchMax) co_return errno_error(EINVAL, "ioctl");
  for (int i = 0; i < order->n; i++) {
    const size_t start = order->start[i];
    const size_t end = order->end[i];
    if (end < start || end > INT64_MAX) co_return errno_error(EINVAL, "ioctl");
    if (end == start) continue;
    constexpr int kHow = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    auto punching = operations_->allocate(handle, kHow, start, end - start);
    FF_CO_TRY(co_await std::move(punching));
  }
  co_return Result<void>();
}

Task<Result<void>> Session::move_order(Request& request) {
  FF_CO_TRY(const auto order, request.take<usrbio::MoveOrder>());
  Operations::Rename how{.from_dir = order.from_dir, .to_dir = order.to_dir};
  FF_CO_TRY(how.from, name_of(order.from));
  FF_CO_TRY(how.to, name_of(order.to));
  auto renaming = operations_->rename(caller_of(request), std::move(how));
  co_return co_await std::move(renaming);
}

Task<Result<void>> Session::remove_order(Request& request) {
  FF_CO_TRY(const auto order, request.take<usrbio::RemoveOrder>());
  FF_CO_TRY(std::string name, name_of(order.name));
  const meta::Caller caller = caller_of(request);
  if (order.recursive) {
    auto removing = operations_->remove_tree(caller, order.dir, name);
    auto removed = co_await std::move(removing);
    if (removed || removed.error().sys != ENOTDIR) co_return removed;
  }
  auto unlinking = operations_->unlink(caller, order.dir, name);
  auto unlinked = co_await std::move(unlinking);
  if (unlinked || unlinked.error().sys != EISDIR) co_return unlinked;
  auto removing_dir = operations_->rmdir(caller, order.dir, std::move(name));
  co_return co_await std::move(removing_dir);
}

}  // namespace ff::mount

// namespace_attributes.cc: mode, owner, times, layouts, extended attributes.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/base/text.h"
#include "storage/meta/namespace_steps.h"
#include "storage/meta/records.h"

namespace ff::meta {

Namespace::Attributes attributes_of(const wire::SetAttributesRequest& request) {
  Namespace::Attributes to;
  if (request.has_mode()) to.mode = request.mode();
  if (request.has_uid()) to.uid = request.uid();
  if (request.has_gid()) to.gid = request.gid();
  if (request.has_atime_ns()) to.atime_ns = request.atime_ns();
  if (request.has_mtime_ns()) to.mtime_ns = request.mtime_ns();
  to.times_now = request.times_now();
  return to;
}

Task<Result<Inode>> set_attributes_step(kv::Txn& txn, const Caller& caller, InodeId id,
                                        const Namespace::Attributes& to, int64_t now_ns) {
  FF_CO_TRY(auto record, co_await read_inode(txn, id));
  FF_CO_TRY(co_await check_undelegated(txn, record, caller.lease));
  FF_CO_TRY(Inode inode, co_await with_times(txn, std::move(record)));
  FF_CO_TRY(change_attributes(caller, inode, to, now_ns));
  if (inode.is(InodeType::directory) && (to.mtime_ns || to.times_now)) {
    wire::Times times;
    times.set_mtime_ns(inode.mtime_ns);
    times.set_ctime_ns(now_ns);
    txn.put(keys::times(id), times.SerializeAsString());
  }
  put_inode(txn, inode);
  co_return inode;
}

Task<Result<Inode>> Namespace::set_attributes(Caller caller, RequestId request, InodeId id,
                                              Attributes to) {
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    co_return co_await set_attributes_step(txn, caller, id, to, now_ns);
  };
  std::vector<std::string> reads = {keys::inode(id)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

Task<Result<Inode>> Namespace::set_layout(Caller caller, RequestId request, InodeId id,
                                          Layout layout) {
  if (layout.table != 0) {
    layout = with_defaults(layout);
    layout.version = 0;
    layout.seed = 0;
    FF_CO_TRY(check_layout(layout));
    const auto tables = options_.tables();
    if (!tables->contains(layout.table)) {
      co_return fail(Errc::usage, "the cluster has no chain table {}", layout.table);
    }
  }
  const int64_t now_ns = clock_.wall_ns();
  const std::string what = fmt::format("inode {}", id);
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(Inode inode, co_await read_inode(txn, id));
    FF_CO_TRY(co_await check_undelegated(txn, inode, caller.lease));
    if (!inode.is(InodeType::directory)) {
      Error error = errno_error(ENOTDIR, what);
      error.hint = "The layout of a file cannot be changed; set the layout of its directory.";
      co_return error;
    }
    FF_CO_TRY(check_owner(caller, inode, what));
    inode.layout = layout.table == 0 ? Layout() : layout;
    inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    co_return co_await with_times(txn, std::move(inode));
  };
  std::vector<std::string> reads = {keys::inode(id)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

namespace {

std::string xattr_key(InodeId id, std::string_view name) {
  return keys::of(keys::kXattr, id, name);
}

// user.* need the rights on the file contents; trusted.* are for root only (xattr(7)).
Result<void> check_xattr(const Caller& caller, const Inode& inode, std::string_view name,
                         uint32_t right) {
  const std::string what = printable(name);
  if (name.starts_with("trusted.")) {
    if (caller.is_root()) return {};
    return errno_error(right == kMayWrite ? EPERM : ENODATA, what);
  }
  if (!name.starts_with("user.") || name.size() == 5) {
    Error error = errno_error(EOPNOTSUPP, what);
    error.hint = "Extended attributes are named user.NAME or trusted.NAME.";
    return error;
  }
  if (!inode.is(InodeType::file) && !inode.is(InodeType::directory))
    return errno_error(EPERM, what);
  if (inode.is(InodeType::directory) && (inode.mode & kSticky) != 0 && right == kMayWrite) {
    FF_TRY(check_owner(caller, inode, what));
  }
  return check_access(caller, inode, right, what);
}

}  // namespace

Task<Result<std::optional<std::string>>> Namespace::get_xattr(Caller caller, InodeId id,
                                                              std::string name) {
  std::optional<std::string> value;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(const Inode inode, co_await read_inode(txn, id));
    FF_CO_TRY(co_await check_undelegated(txn, inode, caller.lease));
    FF_CO_TRY(check_xattr(caller, inode, name, kMayRead));
    FF_CO_TRY(value, co_await txn.get(xattr_key(id, name)));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return value;
}

Task<Result<std::vector<std::string>>> Namespace::list_xattrs(InodeId id) {
  std::vector<std::string> names;
  kv::TxnFunction function = [&](kv::Txn& txn) -> Task<Result<void>> {
    names.clear();
    FF_CO_TRY(co_await read_inode(txn, id));
    auto ranging = txn.range(keys::range_of(keys::kXattr, id, kXattrsMax + 1), {});
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& entry : entries) names.emplace_back(keys::name_of(entry.key));
    co_return Result<void>();
  };
  FF_CO_TRY(co_await view_inline(std::move(function)));
  co_return names;
}

Task<Result<Inode>> Namespace::set_xattr(Caller caller, RequestId request, InodeId id,
                                         std::string name, std::optional<std::string> value,
                                         XattrMode mode) {
  const std::string what = printable(name.substr(0, kXattrNameMax));
  if (name.size() > kXattrNameMax || name.find('\0') != name.npos) {
    co_return errno_error(ERANGE, what);
  }
  if (value && value->size() > kXattrValueMax) co_return errno_error(E2BIG, what);
  const int64_t now_ns = clock_.wall_ns();
  Body body = [&](kv::Txn& txn) -> Task<Result<Inode>> {
    FF_CO_TRY(Inode inode, co_await read_inode(txn, id));
    FF_CO_TRY(co_await check_undelegated(txn, inode, caller.lease));
    FF_CO_TRY(check_xattr(caller, inode, name, kMayWrite));
    FF_CO_TRY(const auto before, co_await txn.get(xattr_key(id, name)));
    if (before && mode == XattrMode::create) co_return errno_error(EEXIST, what);
    if (!before && (!value || mode == XattrMode::replace)) co_return errno_error(ENODATA, what);
    if (!before && inode.xattrs >= kXattrsMax) co_return errno_error(ENOSPC, what);
    inode.xattrs += (value ? 1 : 0);
    inode.xattrs -= (before ? 1 : 0);
    inode.ctime_ns = now_ns;
    put_inode(txn, inode);
    if (value) {
      txn.put(xattr_key(id, name), *value);
    } else {
      txn.erase(xattr_key(id, name));
    }
    co_return co_await with_times(txn, std::move(inode));
  };
  std::vector<std::string> reads = {keys::inode(id), xattr_key(id, name)};
  co_return co_await execute_once(request, std::move(reads), std::move(body));
}

}  // namespace ff::meta

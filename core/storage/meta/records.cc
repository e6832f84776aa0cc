// records.cc: what is read and put together.
#include "storage/meta/records.h"

#include <algorithm>
#include <cerrno>

#include "platform/base/text.h"

namespace ff::meta {

Error stale_inode(InodeId id) { return errno_error(ESTALE, fmt::format("inode {}", id)); }

Result<Inode> inode_of(const std::string& value) {
  FF_TRY(const auto message, parse_record<wire::Inode>(std::string(keys::kInode), value));
  return from_wire(message);
}

Result<Entry> entry_of(const kv::Entry& entry) {
  FF_TRY(const auto message, parse_record<wire::Dentry>(entry.key, entry.value));
  if (message.inode() != 0 && message.kind() >= 1 &&
      message.kind() <= static_cast<uint32_t>(Kind::block)) {
    return Entry{message.inode(), static_cast<Kind>(message.kind())};
  }
  return fail(Errc::corrupt, "an entry for inode {} of kind {}", message.inode(), message.kind());
}

Task<Result<std::optional<Inode>>> find_inode(kv::Txn& txn, InodeId id) {
  auto reading = txn.get(keys::inode(id));
  FF_CO_TRY(const auto value, co_await std::move(reading));
  if (!value) co_return std::optional<Inode>();
  FF_CO_TRY(auto inode, inode_of(*value));
  co_return std::optional<Inode>(std::move(inode));
}

Task<Result<Inode>> read_inode(kv::Txn& txn, InodeId id) {
  auto finding = find_inode(txn, id);
  FF_CO_TRY(auto found, co_await std::move(finding));
  if (!found) co_return stale_inode(id);
  co_return std::move(*found);
}

Task<Result<Inode>> read_dir(kv::Txn& txn, InodeId id, std::string what) {
  auto finding = find_inode(txn, id);
  FF_CO_TRY(auto found, co_await std::move(finding));
  if (!found) co_return errno_error(ENOENT, printable(what));
  if (!found->is(Kind::directory)) co_return errno_error(ENOTDIR, printable(what));
  if (found->links == 0) co_return errno_error(ENOENT, printable(what));
  co_return std::move(*found);
}

Task<Result<Inode>> with_times(kv::Txn& txn, Inode inode) {
  if (!inode.is(Kind::directory)) co_return inode;
  auto reading = read_record<wire::Times>(txn, keys::times(inode.id));
  FF_CO_TRY(const auto times, co_await std::move(reading));
  if (times) {
    inode.mtime_ns = times->mtime_ns();
    inode.ctime_ns = std::max(inode.ctime_ns, times->ctime_ns());
  }
  co_return inode;
}

Task<Result<std::optional<Entry>>> find_entry(kv::Txn& txn, InodeId dir, std::string name) {
  kv::Entry entry{.key = keys::dentry(dir, name), .value = {}};
  auto reading = txn.get(entry.key);
  FF_CO_TRY(auto value, co_await std::move(reading));
  if (!value) co_return std::optional<Entry>();
  entry.value = std::move(*value);
  FF_CO_TRY(const Entry found, entry_of(entry));
  co_return std::optional<Entry>(found);
}

Task<Result<bool>> is_empty(kv::Txn& txn, InodeId dir) {
  auto reading = txn.range(keys::all(keys::kDentry, dir, 1), keys::times(dir));
  FF_CO_TRY(const auto entries, co_await std::move(reading));
  co_return entries.empty();
}

void put_inode(kv::Txn& txn, const Inode& inode) {
  wire::Inode message;
  to_wire(inode, message);
  txn.put(keys::inode(inode.id), message.SerializeAsString());
}

void put_entry(kv::Txn& txn, InodeId dir, const std::string& name, Entry entry) {
  wire::Dentry message;
  message.set_inode(entry.inode);
  message.set_kind(static_cast<uint32_t>(entry.kind));
  txn.put(keys::dentry(dir, name), message.SerializeAsString());
}

void touch(kv::Txn& txn, InodeId dir, int64_t now_ns) {
  wire::Times times;
  times.set_mtime_ns(now_ns);
  times.set_ctime_ns(now_ns);
  txn.put(keys::times(dir), times.SerializeAsString());
}

Task<Result<Inode>> named_inode(kv::Txn& txn, Entry entry, std::string what) {
  auto reading = find_inode(txn, entry.inode);
  FF_CO_TRY(auto inode, co_await std::move(reading));
  if (inode) co_return std::move(*inode);
  Error error = fail(Errc::corrupt, "{}: its inode {} is missing", what, entry.inode);
  error.hint = "Look at the whole: ff admin fsck";
  error.sys = EIO;
  co_return error;
}

Task<Result<Child>> child_of(kv::Txn& txn, Caller caller, InodeId dir, std::string name) {
  const std::string what = printable(name);
  auto reading_dir = read_dir(txn, dir, name);
  FF_CO_TRY(Inode parent, co_await std::move(reading_dir));
  FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
  auto finding = find_entry(txn, dir, std::move(name));
  FF_CO_TRY(const auto entry, co_await std::move(finding));
  if (!entry) co_return errno_error(ENOENT, what);
  auto reading = named_inode(txn, *entry, what);
  FF_CO_TRY(auto inode, co_await std::move(reading));
  co_return Child{std::move(parent), std::move(inode)};
}

void put_session(kv::Txn& txn, InodeId id, SessionId session, int64_t now_ns) {
  wire::Opened record;
  record.set_since_ns(now_ns);
  txn.put(keys::session(id, session), record.SerializeAsString());
}

void take_out_dir(kv::Txn& txn, Inode& dir, const std::string& name, int64_t now_ns) {
  dir.links--;
  txn.erase(keys::dentry(dir.id, name));
  put_inode(txn, dir);
  touch(txn, dir.id, now_ns);
}

Task<Result<void>> drop_name(kv::Txn& txn, Inode& inode, std::optional<SessionId> holder,
                             int64_t now_ns) {
  inode.ctime_ns = now_ns;
  inode.links = inode.is(Kind::directory) ? 0 : inode.links - 1;
  if (inode.links == 0 && (inode.is(Kind::directory) || inode.is(Kind::symlink))) {
    auto erasing = erase_inode(txn, inode);
    co_return co_await std::move(erasing);
  }
  put_inode(txn, inode);
  if (inode.links == 0) {
    txn.put(keys::of(keys::kGarbage, static_cast<uint64_t>(now_ns), inode.id), "");
    if (holder && inode.is(Kind::file)) put_session(txn, inode.id, *holder, now_ns);
  }
  co_return Result<void>();
}

Task<Result<void>> erase_inode(kv::Txn& txn, Inode inode) {
  if (inode.xattrs > 0) {
    auto reading =
        txn.range(keys::all(keys::kXattr, inode.id, kXattrsMax + 1), keys::inode(inode.id));
    FF_CO_TRY(const auto xattrs, co_await std::move(reading));
    for (const kv::Entry& xattr : xattrs) txn.erase(xattr.key);
  }
  txn.erase(keys::inode(inode.id));
  if (inode.is(Kind::directory)) txn.erase(keys::times(inode.id));
  if (inode.cutting) txn.erase(keys::of(keys::kCut, inode.id));
  if (inode.is(Kind::file)) txn.erase(keys::of(keys::kLock, inode.id));
  co_return Result<void>();
}

}  // namespace ff::meta

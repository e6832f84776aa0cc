// records.cc: parses, reads and writes records.
#include "storage/meta/records.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "platform/base/text.h"

namespace ff::meta {

Error stale_error(InodeId id) { return errno_error(ESTALE, fmt::format("inode {}", id)); }

namespace {

constexpr std::string_view kDelegatedText = "delegated to another client: directory ";

}  // namespace

// A transaction has no other way to return the two numbers than its error.
Error delegated_error(InodeId dir, uint64_t lease) {
  Error error = fail(Errc::busy, "{}{} by lease {}", kDelegatedText, dir, lease);
  error.sys = EINPROGRESS;
  return error;
}

std::optional<DelegationConflict> delegation_conflict(const Error& error) {
  if (error.sys != EINPROGRESS || !error.message.starts_with(kDelegatedText)) return std::nullopt;
  DelegationConflict conflict;
  const std::string_view text = std::string_view(error.message).substr(kDelegatedText.size());
  const char* const end = text.data() + text.size();
  const auto dir = std::from_chars(text.data(), end, conflict.dir);
  constexpr std::string_view kBy = " by lease ";
  std::from_chars(std::min(dir.ptr + kBy.size(), end), end, conflict.lease);
  return conflict;
}

Result<Inode> parse_inode(const std::string& value) {
  FF_TRY(const auto message, parse_record<wire::Inode>(std::string(keys::kInode), value));
  return from_wire(message);
}

Result<Dentry> parse_dentry(const kv::Entry& entry) {
  FF_TRY(const auto message, parse_record<wire::Dentry>(entry.key, entry.value));
  if (message.inode() != 0 && message.kind() >= 1 &&
      message.kind() <= static_cast<uint32_t>(InodeType::block)) {
    return Dentry{message.inode(), static_cast<InodeType>(message.kind())};
  }
  return fail(Errc::corrupt, "invalid directory entry: inode {}, kind {}", message.inode(),
              message.kind());
}

Task<Result<std::optional<Inode>>> find_inode(kv::Txn& txn, InodeId id) {
  FF_CO_TRY(const auto value, co_await txn.get(keys::inode(id)));
  if (!value) co_return std::optional<Inode>();
  FF_CO_TRY(auto inode, parse_inode(*value));
  co_return std::optional<Inode>(std::move(inode));
}

Task<Result<Inode>> read_inode(kv::Txn& txn, InodeId id) {
  FF_CO_TRY(auto found, co_await find_inode(txn, id));
  if (!found) co_return stale_error(id);
  co_return std::move(*found);
}

Task<Result<void>> check_undelegated(kv::Txn& txn, const Inode& inode, uint64_t lease) {
  if (inode.delegate == 0 || inode.delegate == lease) co_return Result<void>();
  FF_CO_TRY(const auto held, co_await txn.get(keys::of(keys::kLease, inode.delegate)));
  if (!held) co_return Result<void>();
  co_return delegated_error(inode.id, inode.delegate);
}

Task<Result<void>> check_stored(kv::Txn& txn, const Inode& inode,
                                std::optional<SessionId> session) {
  if (!inode.unstored || inode.unstored == session) co_return Result<void>();
  FF_CO_TRY(const auto lasts, co_await txn.get(keys::session(inode.id, *inode.unstored)));
  if (!lasts) co_return Result<void>();
  Error error = fail(Errc::disk_full,
                     "inode {}: storage has no room yet for what another client has written to the "
                     "file before",
                     inode.id);
  error.hint = "Remove files, or add disks and move targets to them.";
  error.sys = ENOSPC;
  co_return error;
}

Task<Result<Inode>> read_dir(kv::Txn& txn, InodeId id, std::string what, uint64_t lease) {
  FF_CO_TRY(auto found, co_await find_inode(txn, id));
  if (!found) co_return errno_error(ENOENT, printable(what));
  if (!found->is(InodeType::directory)) co_return errno_error(ENOTDIR, printable(what));
  if (found->links == 0) co_return errno_error(ENOENT, printable(what));
  FF_CO_TRY(co_await check_undelegated(txn, *found, lease));
  co_return std::move(*found);
}

namespace {

Inode merge_times(Inode inode, const wire::Times& times) {
  inode.mtime_ns = times.mtime_ns();
  inode.ctime_ns = std::max(inode.ctime_ns, times.ctime_ns());
  return inode;
}

}  // namespace

Task<Result<Inode>> with_times(kv::Txn& txn, Inode inode) {
  if (!inode.is(InodeType::directory)) co_return inode;
  FF_CO_TRY(const auto times, co_await read_record<wire::Times>(txn, keys::times(inode.id)));
  if (times) inode = merge_times(std::move(inode), *times);
  co_return inode;
}

Task<Result<std::vector<std::optional<Inode>>>> find_inodes(kv::Txn& txn,
                                                            std::vector<Dentry> entries) {
  std::vector<std::string> wanted;
  for (const Dentry& entry : entries) wanted.push_back(keys::inode(entry.inode));
  for (const Dentry& entry : entries) {
    if (entry.kind == InodeType::directory) wanted.push_back(keys::times(entry.inode));
  }
  FF_CO_TRY(const auto records, co_await txn.get_all(wanted));
  std::vector<std::optional<Inode>> inodes(entries.size());
  size_t times_at = entries.size();
  for (size_t i = 0; i < entries.size(); i++) {
    const bool directory = entries[i].kind == InodeType::directory;
    const size_t at = directory ? times_at++ : 0;
    if (!records[i]) continue;
    FF_CO_TRY(Inode inode, parse_inode(*records[i]));
    if (directory && records[at]) {
      FF_CO_TRY(const auto times, parse_record<wire::Times>(wanted[at], *records[at]));
      inode = merge_times(std::move(inode), times);
    }
    inodes[i] = std::move(inode);
  }
  co_return inodes;
}

Task<Result<std::optional<Dentry>>> find_dentry(kv::Txn& txn, InodeId dir, std::string name) {
  kv::Entry entry{.key = keys::dentry(dir, name), .value = {}};
  FF_CO_TRY(auto value, co_await txn.get(entry.key));
  if (!value) co_return std::optional<Dentry>();
  entry.value = std::move(*value);
  FF_CO_TRY(const Dentry found, parse_dentry(entry));
  co_return std::optional<Dentry>(found);
}

Task<Result<bool>> is_empty(kv::Txn& txn, InodeId dir) {
  FF_CO_TRY(const auto entries,
            co_await txn.range(keys::range_of(keys::kDentry, dir, 1), keys::times(dir)));
  co_return entries.empty();
}

void put_inode(kv::Txn& txn, const Inode& inode) {
  wire::Inode message;
  to_wire(inode, message);
  txn.put(keys::inode(inode.id), message.SerializeAsString());
}

void put_dentry(kv::Txn& txn, InodeId dir, const std::string& name, Dentry entry) {
  wire::Dentry message;
  message.set_inode(entry.inode);
  message.set_kind(static_cast<uint32_t>(entry.kind));
  txn.put(keys::dentry(dir, name), message.SerializeAsString());
}

void touch_dir(kv::Txn& txn, InodeId dir, int64_t now_ns) {
  wire::Times times;
  times.set_mtime_ns(now_ns);
  times.set_ctime_ns(now_ns);
  txn.put(keys::times(dir), times.SerializeAsString());
}

Task<Result<Inode>> read_dentry_inode(kv::Txn& txn, Dentry entry, std::string what) {
  FF_CO_TRY(auto inode, co_await find_inode(txn, entry.inode));
  if (inode) co_return std::move(*inode);
  Error error = fail(Errc::corrupt, "{}: its inode {} is missing", what, entry.inode);
  error.hint = "Check the metadata: ff admin fsck";
  error.sys = EIO;
  co_return error;
}

Task<Result<Child>> find_child(kv::Txn& txn, Caller caller, InodeId dir, std::string name) {
  const std::string what = printable(name);
  FF_CO_TRY(Inode parent, co_await read_dir(txn, dir, name, caller.lease));
  FF_CO_TRY(check_access(caller, parent, kMaySearch, what));
  FF_CO_TRY(const auto entry, co_await find_dentry(txn, dir, std::move(name)));
  if (!entry) co_return errno_error(ENOENT, what);
  FF_CO_TRY(auto inode, co_await read_dentry_inode(txn, *entry, what));
  FF_CO_TRY(co_await check_undelegated(txn, inode, caller.lease));
  co_return Child{std::move(parent), std::move(inode)};
}

void put_session(kv::Txn& txn, InodeId id, SessionId session, int64_t now_ns) {
  wire::Opened record;
  record.set_since_ns(now_ns);
  txn.put(keys::session(id, session), record.SerializeAsString());
}

void unlink_dir(kv::Txn& txn, Inode& dir, const std::string& name, int64_t now_ns) {
  dir.links--;
  txn.erase(keys::dentry(dir.id, name));
  put_inode(txn, dir);
  touch_dir(txn, dir.id, now_ns);
}

Task<Result<void>> drop_link(kv::Txn& txn, Inode& inode, std::optional<SessionId> holder,
                             int64_t now_ns) {
  inode.ctime_ns = now_ns;
  inode.links = inode.is(InodeType::directory) ? 0 : inode.links - 1;
  if (inode.links == 0 && (inode.is(InodeType::directory) || inode.is(InodeType::symlink))) {
    co_return co_await erase_inode(txn, inode);
  }
  put_inode(txn, inode);
  if (inode.links == 0) {
    txn.put(keys::of(keys::kGarbage, static_cast<uint64_t>(now_ns), inode.id), "");
    if (holder && inode.is(InodeType::file)) put_session(txn, inode.id, *holder, now_ns);
  }
  co_return Result<void>();
}

Task<Result<void>> erase_inode(kv::Txn& txn, Inode inode) {
  if (inode.xattrs > 0) {
    FF_CO_TRY(const auto xattrs,
              co_await txn.range(keys::range_of(keys::kXattr, inode.id, kXattrsMax + 1),
                                 keys::inode(inode.id)));
    for (const kv::Entry& xattr : xattrs) txn.erase(xattr.key);
  }
  txn.erase(keys::inode(inode.id));
  if (inode.is(InodeType::directory)) txn.erase(keys::times(inode.id));
  if (inode.truncating) txn.erase(keys::of(keys::kTruncation, inode.id));
  if (inode.is(InodeType::file)) txn.erase(keys::of(keys::kLock, inode.id));
  co_return Result<void>();
}

}  // namespace ff::meta

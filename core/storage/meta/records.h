// Reads and writes metadata records inside a transaction: the building blocks of namespace.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/kv/engine.h"
#include "storage/meta/access.h"
#include "storage/meta/inode.h"
#include "storage/meta/keys.h"

namespace ff::meta {

template <class Message>
Result<Message> parse_record(const std::string& key, const std::string& value) {
  Message message;
  if (message.ParseFromString(value)) return message;
  return fail(Errc::corrupt, "a {} record of the metadata is unreadable",
              key.substr(0, keys::kPrefixBytes));
}

template <class Message>
Task<Result<std::optional<Message>>> read_record(kv::Txn& txn, std::string key) {
  FF_CO_TRY(const auto value, co_await txn.get(key));
  if (!value) co_return std::optional<Message>();
  FF_CO_TRY(auto message, parse_record<Message>(key, *value));
  co_return std::optional<Message>(std::move(message));
}

// Calls `take`, void(const kv::Entry&), for all records with this prefix. Only in a view.
template <class Take>
Task<Result<void>> scan_records(kv::Txn& txn, std::string_view prefix, Take take) {
  constexpr size_t kPage = 4096;
  kv::Range range{
      .begin = std::string(prefix), .end = kv::end_of_prefix(std::string(prefix)), .limit = kPage};
  for (;;) {
    auto ranging = txn.range(range, {});
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& entry : entries) {
      if (entry.key.size() >= keys::kPrefixBytes + 8) take(entry);
    }
    if (entries.size() < range.limit) co_return Result<void>();
    range.begin = entries.back().key + '\0';
  }
}

struct Dentry {
  InodeId inode = 0;
  InodeType kind = InodeType::file;
};

// The stored record; a directory comes without its times.
Task<Result<std::optional<Inode>>> find_inode(kv::Txn& txn, InodeId id);
// The inodes of several dentries, in their order and with the times of directories, in one read.
// Only in a view.
Task<Result<std::vector<std::optional<Inode>>>> find_inodes(kv::Txn& txn,
                                                            std::vector<Dentry> entries);
// ESTALE: it does not exist.
Task<Result<Inode>> read_inode(kv::Txn& txn, InodeId id);
// Succeeds unless another client, which does not have this lease, holds the delegation of the
// directory: then is_delegated() is true for the error. Any other kind of inode is free.
Task<Result<void>> check_undelegated(kv::Txn& txn, const Inode& inode, uint64_t lease);
// ENOSPC: another session has bytes to store that must not overwrite later ones.
Task<Result<void>> check_stored(kv::Txn& txn, const Inode& inode, std::optional<SessionId> session);
// ENOTDIR: not a directory. ENOENT: it was removed. Also the error of check_undelegated().
Task<Result<Inode>> read_dir(kv::Txn& txn, InodeId id, std::string what, uint64_t lease);
// Adds the times of a directory (DIRV).
Task<Result<Inode>> with_times(kv::Txn& txn, Inode inode);
Task<Result<std::optional<Dentry>>> find_dentry(kv::Txn& txn, InodeId dir, std::string name);
Task<Result<bool>> is_empty(kv::Txn& txn, InodeId dir);

// A directory and the inode of one name in it. ENOENT; EACCES: no right to search the directory.
struct Child {
  Inode dir;
  Inode inode;
};
Task<Result<Child>> find_child(kv::Txn& txn, Caller caller, InodeId dir, std::string name);
// The inode of a dentry. Errc::corrupt: it is missing.
Task<Result<Inode>> read_dentry_inode(kv::Txn& txn, Dentry entry, std::string what);

void put_inode(kv::Txn& txn, const Inode& inode);
void put_dentry(kv::Txn& txn, InodeId dir, const std::string& name, Dentry entry);
// Every change of the entries of `dir` must call this: it sets the times and is the guard of reads.
void touch_dir(kv::Txn& txn, InodeId dir, int64_t now_ns);
void put_session(kv::Txn& txn, InodeId id, SessionId session, int64_t now_ns);
// Removes the dentry of a subdirectory from `dir`, which loses a link.
void unlink_dir(kv::Txn& txn, Inode& dir, const std::string& name, int64_t now_ns);
// Parse values that a range read has returned. Errc::corrupt.
Result<Dentry> parse_dentry(const kv::Entry& entry);
Result<Inode> parse_inode(const std::string& value);

// Drops one link of the inode. An inode without links becomes garbage; a directory or symbolic link
// is erased at once. `holder`: a session that has the file open and thus keeps its chunks.
Task<Result<void>> drop_link(kv::Txn& txn, Inode& inode, std::optional<SessionId> holder,
                             int64_t now_ns);
// Erases the inode and all its records. The chunks stay.
Task<Result<void>> erase_inode(kv::Txn& txn, Inode inode);

Error stale_error(InodeId id);

// A directory, and the lease to which it is delegated, that hold up a call of another client.
struct DelegationConflict {
  InodeId dir = 0;
  uint64_t lease = 0;
};
Error delegated_error(InodeId dir, uint64_t lease);
// None: another error.
std::optional<DelegationConflict> delegation_conflict(const Error& error);

}  // namespace ff::meta

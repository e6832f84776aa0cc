// Records of the metadata inside a transaction: what the operations of names.h are made of.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "platform/kv/engine.h"
#include "storage/meta/access.h"
#include "storage/meta/inode.h"
#include "storage/meta/keys.h"

namespace ff::meta {

template <class Message>
Result<Message> parse_record(const std::string& key, const std::string& value) {
  Message message;
  if (message.ParseFromString(value)) return message;
  return fail(Errc::corrupt, "the metadata holds a {} record that cannot be read",
              key.substr(0, keys::kPrefix));
}

template <class Message>
Task<Result<std::optional<Message>>> read_record(kv::Txn& txn, std::string key) {
  auto reading = txn.get(key);
  FF_CO_TRY(const auto value, co_await std::move(reading));
  if (!value) co_return std::optional<Message>();
  FF_CO_TRY(auto message, parse_record<Message>(key, *value));
  co_return std::optional<Message>(std::move(message));
}

// All records of a prefix and a number to `take`: void(const kv::Entry&), in a view.
template <class Take>
Task<Result<void>> scan_records(kv::Txn& txn, std::string_view prefix, Take take) {
  constexpr size_t kPage = 4096;
  kv::Range range{
      .begin = std::string(prefix), .end = kv::end_of_prefix(std::string(prefix)), .limit = kPage};
  for (;;) {
    auto ranging = txn.range(range, {});
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
    for (const kv::Entry& entry : entries) {
      if (entry.key.size() >= keys::kPrefix + 8) take(entry);
    }
    if (entries.size() < range.limit) co_return Result<void>();
    range.begin = entries.back().key + '\0';
  }
}

struct Entry {
  InodeId inode = 0;
  Kind kind = Kind::file;
};

// The record as it is; of a directory without its times.
Task<Result<std::optional<Inode>>> find_inode(kv::Txn& txn, InodeId id);
// ESTALE when there is none.
Task<Result<Inode>> read_inode(kv::Txn& txn, InodeId id);
// ENOTDIR when it is none, ENOENT when it has been removed.
Task<Result<Inode>> read_dir(kv::Txn& txn, InodeId id, std::string what);
// As callers see it.
Task<Result<Inode>> with_times(kv::Txn& txn, Inode inode);
Task<Result<std::optional<Entry>>> find_entry(kv::Txn& txn, InodeId dir, std::string name);
Task<Result<bool>> is_empty(kv::Txn& txn, InodeId dir);

// A name and what it names. ENOENT, EACCES when the caller may not search the directory.
struct Child {
  Inode dir;
  Inode inode;
};
Task<Result<Child>> child_of(kv::Txn& txn, Caller caller, InodeId dir, std::string name);
// What `entry` names. Errc::corrupt when it is missing.
Task<Result<Inode>> named_inode(kv::Txn& txn, Entry entry, std::string what);

void put_inode(kv::Txn& txn, const Inode& inode);
void put_entry(kv::Txn& txn, InodeId dir, const std::string& name, Entry entry);
// The entries of `dir` have changed: every such change puts this.
void touch(kv::Txn& txn, InodeId dir, int64_t now_ns);
void put_session(kv::Txn& txn, InodeId id, SessionId session, int64_t now_ns);
// The name of a directory in `dir`, which has one link less.
void take_out_dir(kv::Txn& txn, Inode& dir, const std::string& name, int64_t now_ns);
// Errc::corrupt like the others; for values that a range has given.
Result<Entry> entry_of(const kv::Entry& entry);
Result<Inode> inode_of(const std::string& value);

// One name of the inode is gone. Without names it is garbage; a directory or symbolic link goes at
// once. `holder` has the file open, which keeps its bytes.
Task<Result<void>> drop_name(kv::Txn& txn, Inode& inode, std::optional<SessionId> holder,
                             int64_t now_ns);
// The inode and all that belongs to it but its bytes.
Task<Result<void>> erase_inode(kv::Txn& txn, Inode inode);

Error stale_inode(InodeId id);

}  // namespace ff::meta

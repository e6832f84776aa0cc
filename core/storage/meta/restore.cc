// restore.cc: finds the records of a path in the backup and puts the missing ones.
#include "storage/meta/restore.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "platform/base/text.h"
#include "platform/kv/backup.h"
#include "platform/kv/record_checksum.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr size_t kRestorePage = 4096;
constexpr size_t kRecordsAtOnce = 64;  // records per transaction
constexpr int kFlippedMax = 3;         // flipped bits in a key
// owner of the session that makes the collector ask storage for the length
constexpr uint64_t kNobodyClient = 0;

using Records = std::map<std::string, std::string>;

struct Found {
  InodeId inode = kRoot;
  std::set<std::string> keys = {};
};

Result<Found> find_in(io::Disk& disk, const std::string& backup, const std::string& path) {
  Found found{.keys = {keys::inode(kRoot), keys::times(kRoot)}};
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string name = path.substr(at, end - at);
    at = end + 1;
    if (name.empty()) continue;
    const std::string key = keys::dentry(found.inode, name);
    std::optional<kv::Entry> entry;
    FF_TRY(kv::read_backup(disk, backup, [&](const kv::Entry& one) {
      if (one.key == key) entry = one;
    }));
    if (!entry) {
      return fail(Errc::not_found, "{}: the backup has no '{}' on the path {}", backup,
                  printable(name), printable(path));
    }
    FF_TRY(const Dentry named, parse_dentry(*entry));
    found.inode = named.inode;
    found.keys.insert({key, keys::inode(named.inode), keys::times(named.inode)});
  }
  return found;
}

// Whether bit flips may have turned one key into the other.
bool alike(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int flipped = 0;
  for (size_t i = 0; i < a.size() && flipped <= kFlippedMax; i++) {
    flipped += std::popcount(
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return flipped <= kFlippedMax;
}

// Collects all damaged keys, and those keys of `wanted` that are intact.
Task<Result<void>> find_damaged(kv::Txn& txn, const Records& wanted, std::set<std::string>& damaged,
                                std::set<std::string>& whole) {
  for (std::string begin;;) {
    kv::Range range{.begin = begin, .end = "\xff", .limit = kRestorePage};
    FF_CO_TRY(const auto entries,
              co_await txn.range(std::move(range), std::string(kv::kIncludeDamaged)));
    for (const kv::Entry& entry : entries) {
      std::string key(kv::stored_key(entry.key));
      if (kv::is_damaged(entry.key)) {
        damaged.insert(std::move(key));
      } else if (wanted.contains(key)) {
        whole.insert(std::move(key));
      }
    }
    if (entries.size() < kRestorePage) co_return Result<void>();
    begin = std::string(kv::stored_key(entries.back().key)) + '\0';
  }
}

// Adds a session of a dead client, so that the garbage collector asks storage for the length.
void refresh_length_later(Records& put, InodeId inode) {
  wire::Counter counter;
  counter.set_next(1);
  put[keys::of(keys::kClient, kNobodyClient)] = counter.SerializeAsString();
  put[keys::session(inode, {kNobodyClient, kNobodyClient})] = wire::Opened().SerializeAsString();
}

}  // namespace

Task<Result<RestoredName>> restore_name(kv::Engine& engine, io::Disk& disk, std::string backup,
                                        std::string path, int64_t deadline_ns) {
  FF_CO_TRY(const Found found, find_in(disk, backup, path));
  const std::string xattrs = keys::of(keys::kXattr, found.inode);
  Records wanted;
  FF_CO_TRY(kv::read_backup(disk, backup, [&](const kv::Entry& one) {
    if (found.keys.contains(one.key) || one.key.starts_with(xattrs)) wanted[one.key] = one.value;
  }));
  std::set<std::string> damaged, whole;
  kv::TxnFunction looking = [&](kv::Txn& txn) { return find_damaged(txn, wanted, damaged, whole); };
  FF_CO_TRY(co_await engine.view(std::move(looking), deadline_ns));
  std::erase_if(wanted, [&](const auto& one) { return whole.contains(one.first); });
  RestoredName restored;
  for (const auto& [key, value] : wanted) restored.put.push_back(kv::key_text(key));
  std::set<std::string> erased;
  for (const std::string& key : damaged) {
    const bool flipped = !wanted.contains(key) && std::ranges::any_of(wanted, [&](const auto& one) {
      return !damaged.contains(one.first) && alike(one.first, key);
    });
    if (!flipped) continue;
    erased.insert(key);
    restored.erased.push_back(kv::key_text(key));
  }
  if (const auto inode = wanted.find(keys::inode(found.inode)); inode != wanted.end()) {
    FF_CO_TRY(const Inode parsed, parse_inode(inode->second));
    if (parsed.is(InodeType::file)) refresh_length_later(wanted, found.inode);
  }
  for (auto next = wanted.begin(); next != wanted.end() || !erased.empty();) {
    const auto first = next;
    for (size_t i = 0; i < kRecordsAtOnce && next != wanted.end(); i++) ++next;
    kv::TxnFunction writing = [&](kv::Txn& txn) -> Task<Result<void>> {
      for (auto one = first; one != next; ++one) txn.put(one->first, one->second);
      for (const std::string& key : erased) txn.erase(key);
      co_return Result<void>();
    };
    FF_CO_TRY(co_await engine.run(std::move(writing), deadline_ns));
    erased.clear();
  }
  co_return restored;
}

}  // namespace ff::meta

// restore.cc: which records a name is made of, and which of them the store lacks.
#include "storage/meta/restore.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "platform/base/text.h"
#include "platform/kv/backup.h"
#include "platform/kv/seal.h"
#include "storage/meta/records.h"

namespace ff::meta {

namespace {

constexpr size_t kRestorePage = 4096;
constexpr size_t kRecordsAtOnce = 64;  // records put in one transaction
constexpr int kFlippedMax = 3;         // bits of a key
constexpr uint64_t kNobodyClient = 0;  // the client that has a file open until it is measured

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
      return fail(Errc::not_found, "{}: it has no '{}' on the way to {}", backup, printable(name),
                  printable(path));
    }
    FF_TRY(const Entry named, entry_of(*entry));
    found.inode = named.inode;
    found.keys.insert({key, keys::inode(named.inode), keys::times(named.inode)});
  }
  return found;
}

// Whether one may have become the other by itself.
bool alike(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int flipped = 0;
  for (size_t i = 0; i < a.size() && flipped <= kFlippedMax; i++) {
    flipped += std::popcount(
        static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return flipped <= kFlippedMax;
}

// All that is damaged, and those of `wanted` that are there.
Task<Result<void>> look(kv::Txn& txn, const Records& wanted, std::set<std::string>& damaged,
                        std::set<std::string>& whole) {
  for (std::string begin;;) {
    kv::Range range{.begin = begin, .end = "\xff", .limit = kRestorePage};
    auto ranging = txn.range(std::move(range), std::string(kv::kWithDamaged));
    FF_CO_TRY(const auto entries, co_await std::move(ranging));
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

// As if somebody who has died had it open: then storage is asked for its length.
void measure_later(Records& put, InodeId inode) {
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
  kv::Function looking = [&](kv::Txn& txn) { return look(txn, wanted, damaged, whole); };
  auto viewing = engine.view(std::move(looking), deadline_ns);
  FF_CO_TRY(co_await std::move(viewing));
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
    FF_CO_TRY(const Inode parsed, inode_of(inode->second));
    if (parsed.is(Kind::file)) measure_later(wanted, found.inode);
  }
  for (auto next = wanted.begin(); next != wanted.end() || !erased.empty();) {
    const auto first = next;
    for (size_t i = 0; i < kRecordsAtOnce && next != wanted.end(); i++) ++next;
    kv::Function writing = [&](kv::Txn& txn) -> Task<Result<void>> {
      for (auto one = first; one != next; ++one) txn.put(one->first, one->second);
      for (const std::string& key : erased) txn.erase(key);
      co_return Result<void>();
    };
    auto running = engine.run(std::move(writing), deadline_ns);
    FF_CO_TRY(co_await std::move(running));
    erased.clear();
  }
  co_return restored;
}

}  // namespace ff::meta

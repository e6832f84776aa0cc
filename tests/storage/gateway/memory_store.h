// A store of keys and values in memory, for tests of the gateway: changes appear after a turn of
// the loop, errors when a test asks for them.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/text.h"
#include "platform/base/wait.h"
#include "storage/kvstore/store.h"

namespace ff::gateway {

class MemoryStore final : public kvstore::Store {
 public:
  static constexpr uint32_t kPartitions = 4;

  explicit MemoryStore(Loop& loop) : loop_(loop) {}

  // Of every change and read while it is set.
  std::optional<Error> error;
  // Of the partitions, as other processes own them; empty: this one owns them.
  std::map<uint32_t, std::string> others;
  // Called before the preconditions of a change are checked.
  std::function<void()> before_apply;
  size_t reads = 0;    // calls of get()
  size_t applied = 0;  // calls of apply() that have changed something

  bool has(const std::string& key) { return live(key) != nullptr; }
  void erase(const std::string& key) { entries_.erase(key); }
  void put(const std::string& key, std::string value, int64_t expires_ms = 0) {
    kvstore::Entry entry;
    entry.value = std::move(value);
    entry.expires_ms = expires_ms;
    entry.version = ++version_;
    entries_[key] = std::move(entry);
  }

  Task<void> close() override { co_return; }
  uint32_t partitions() const override { return kPartitions; }
  uint32_t partition_of(std::string_view key) const override {
    return kvstore::redis_slot(key) % kPartitions;
  }
  SlotRange redis_slots(uint32_t partition) const override { return {partition, partition}; }
  bool owned(uint32_t partition) const override { return !others.contains(partition); }
  std::string owner(uint32_t partition) const override {
    const auto found = others.find(partition);
    return found == others.end() ? "127.0.0.1:6379" : found->second;
  }

  Result<std::optional<kvstore::KeyInfo>> find(std::string_view key) override {
    FF_TRY(check(key));
    const auto* const entry = live(std::string(key));
    if (entry == nullptr) return std::optional<kvstore::KeyInfo>();
    return std::optional(kvstore::KeyInfo{entry->version, entry->expires_ms, entry->value.size()});
  }
  Task<Result<std::optional<kvstore::Entry>>> get(std::string key) override {
    reads++;
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    FF_CO_TRY(check(key));
    std::optional<kvstore::Entry> found;
    if (const auto* const entry = live(key)) found = *entry;
    co_return found;
  }
  Task<std::vector<Result<std::optional<kvstore::Entry>>>> get_many(
      std::vector<std::string> keys) override {
    std::vector<Result<std::optional<kvstore::Entry>>> all;
    for (const std::string& key : keys) all.push_back(co_await get(key));
    co_return all;
  }
  Task<Result<kvstore::Applied>> apply(std::vector<kvstore::Change> changes,
                                       std::vector<kvstore::Precondition> preconditions) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    if (before_apply) before_apply();
    for (const kvstore::Change& change : changes) {
      FF_CO_TRY(check(change.key));
      FF_CHECK(partition_of(change.key) == partition_of(changes.front().key));
    }
    for (const kvstore::Precondition& one : preconditions) {
      const auto* const entry = live(one.key);
      if ((entry == nullptr ? 0 : entry->version) != one.version) co_return kvstore::Applied();
    }
    for (kvstore::Change& change : changes) apply_one(change);
    applied++;
    co_return kvstore::Applied{true, version_};
  }
  Task<Result<ScanPage>> scan(uint32_t partition, uint64_t cursor, size_t limit) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    std::map<uint64_t, std::string> by_hash;
    for (const auto& [key, entry] : entries_) {
      if (partition_of(key) == partition && live(key) != nullptr) by_hash[hash_of(key)] = key;
    }
    ScanPage page;
    for (auto at = by_hash.lower_bound(cursor); at != by_hash.end(); ++at) {
      if (page.keys.size() == limit) {
        page.next = at->first;
        break;
      }
      page.keys.push_back(at->second);
    }
    co_return page;
  }
  kvstore::Counts counts(uint32_t partition) const override {
    kvstore::Counts counts;
    for (const auto& [key, entry] : entries_) {
      if (owned(partition) && partition_of(key) == partition) counts.keys++;
    }
    return counts;
  }
  Task<Result<void>> clear(uint32_t partition) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    std::erase_if(entries_,
                  [&](const auto& entry) { return partition_of(entry.first) == partition; });
    co_return Result<void>();
  }
  std::vector<std::string> damage() const override { return {}; }

 private:
  static uint64_t hash_of(const std::string& key) {
    return fnv1a(key) * 0x9e3779b97f4a7c15;  // spreads the low bits
  }
  Result<void> check(std::string_view key) const {
    if (error) return *error;
    if (owned(partition_of(key))) return {};
    return fail(Errc::stale, "another process owns the partition");
  }
  const kvstore::Entry* live(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    const int64_t expires_ms = found->second.expires_ms;
    const bool expired = expires_ms != 0 && expires_ms <= loop_.clock().wall_ns() / kMillisecond;
    return expired ? nullptr : &found->second;
  }
  void apply_one(kvstore::Change& change) {
    using Kind = kvstore::Change::Kind;
    const auto found = entries_.find(change.key);
    if (change.kind == Kind::put) {
      put(change.key, std::move(change.value), change.expires_ms);
    } else if (change.kind == Kind::remove) {
      entries_.erase(change.key);
    } else if (found != entries_.end()) {
      found->second.expires_ms = change.expires_ms;
      found->second.version = ++version_;
    }
  }

  Loop& loop_;
  std::map<std::string, kvstore::Entry> entries_;
  uint64_t version_ = 0;
};

}  // namespace ff::gateway

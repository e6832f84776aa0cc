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
  uint64_t lost = 0;  // losses()
  // Called before the preconditions of a change are checked.
  std::function<void()> before_apply;
  size_t reads = 0;    // calls of get()
  size_t applied = 0;  // calls of apply() that have changed something
  size_t bytes_put = 0;

  bool has(const std::string& key) { return live(key) != nullptr; }
  void erase(const std::string& key) { entries_.erase(key); }
  // Pages of collections, and records of those that are gone.
  size_t parts() const { return parts_.size(); }
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
  uint32_t partition_of_part(std::string_view name) const override {
    return kvstore::slot_of_part(name) % kPartitions;
  }
  SlotRange redis_slots(uint32_t partition) const override { return {partition, partition}; }
  bool owned(uint32_t partition) const override { return !others.contains(partition); }
  std::string owner(uint32_t partition) const override {
    const auto found = others.find(partition);
    return found == others.end() ? "127.0.0.1:6379" : found->second;
  }

  bool is_shared() const override {
    return std::ranges::any_of(others, [](const auto& other) {
      return !other.second.empty() && other.second != "127.0.0.1:6379";
    });
  }
  uint64_t losses() const override { return lost; }

  Result<std::optional<kvstore::KeyInfo>> find(std::string_view key) override {
    FF_TRY(check(key));
    const auto* const entry = live(std::string(key));
    if (entry == nullptr) return std::optional<kvstore::KeyInfo>();
    return std::optional(info_of(*entry));
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
  Result<std::optional<kvstore::KeyInfo>> find_part(std::string_view name) override {
    FF_TRY(check_part(name));
    const auto found = parts_.find(std::string(name));
    if (found == parts_.end()) return std::optional<kvstore::KeyInfo>();
    return std::optional(info_of(found->second));
  }
  Task<Result<std::optional<kvstore::Entry>>> get_part(std::string name) override {
    reads++;
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    FF_CO_TRY(check_part(name));
    std::optional<kvstore::Entry> part;
    const auto found = parts_.find(name);
    if (found != parts_.end()) part = found->second;
    co_return part;
  }
  Result<std::optional<kvstore::KeyInfo>> find_owner(std::string_view key) override {
    FF_TRY(check(key));
    const auto found = entries_.find(std::string(key));
    const bool is_owner =
        found != entries_.end() && found->second.role == kvstore::RecordRole::owner;
    if (!is_owner) return std::optional<kvstore::KeyInfo>();
    return std::optional(info_of(found->second));
  }
  Task<Result<std::optional<kvstore::Entry>>> get_owner(std::string key) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    FF_CO_TRY(const auto info, find_owner(key));
    std::optional<kvstore::Entry> entry;
    if (info) entry = entries_.at(key);
    co_return entry;
  }
  Task<Result<std::vector<kvstore::Leftover>>> leftovers(uint32_t partition,
                                                         size_t limit) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    std::vector<kvstore::Leftover> found;
    for (const auto& [key, entry] : entries_) {
      if (entry.role != kvstore::RecordRole::owner || live(key) != nullptr) continue;
      if (partition_of(key) == partition) found.push_back({.key = key, .entry = entry});
    }
    for (const auto& [name, entry] : parts_) {
      if (entry.role != kvstore::RecordRole::leftover) continue;
      if (partition_of_part(name) == partition) found.push_back({.key = name, .entry = entry});
    }
    if (found.size() > limit) found.resize(limit);
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
      FF_CO_TRY(is_part(change.role) ? check_part(change.key) : check(change.key));
      FF_CHECK(partition_of_change(change) == partition_of_change(changes.front()));
    }
    for (const kvstore::Precondition& one : preconditions) {
      const auto* const entry = live(one.key);
      if ((entry == nullptr ? 0 : entry->version) != one.version) co_return kvstore::Applied();
    }
    const uint64_t version = ++version_;
    for (kvstore::Change& change : changes) {
      bytes_put += change.value.size();
      apply_one(change, version);
    }
    applied++;
    co_return kvstore::Applied{true, version};
  }
  // Reservations are confirmed once; the value is `written`.
  std::string written = "written by another process";
  Task<Result<kvstore::RecordReservation>> reserve(std::string key, uint64_t value_bytes,
                                                   int64_t expires_ms) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    FF_CO_TRY(check(key));
    kvstore::RecordReservation one;
    one.segment_epoch = 1;
    one.offset = value_bytes;
    one.version = ++version_;
    one.expires_ms = expires_ms;
    reserved_[key] = one.version;
    co_return one;
  }
  Task<Result<kvstore::Applied>> confirm(std::string key,
                                         kvstore::RecordReservation reservation) override {
    YieldWait yield(loop_);
    FF_CO_TRY(co_await yield);
    FF_CO_TRY(check(key));
    const auto found = reserved_.find(key);
    if (found == reserved_.end() || found->second != reservation.version) {
      co_return kvstore::Applied();
    }
    reserved_.erase(found);
    put(key, written, reservation.expires_ms);
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
    std::erase_if(parts_,
                  [&](const auto& part) { return partition_of_part(part.first) == partition; });
    co_return Result<void>();
  }
  std::vector<std::string> damage() const override { return {}; }

 private:
  static uint64_t hash_of(const std::string& key) {
    return fnv1a(key) * 0x9e3779b97f4a7c15;  // spreads the low bits
  }
  Result<void> check_partition(uint32_t partition) const {
    if (error) return *error;
    if (owned(partition)) return {};
    return fail(Errc::stale, "another process owns the partition");
  }
  Result<void> check(std::string_view key) const { return check_partition(partition_of(key)); }
  Result<void> check_part(std::string_view name) const {
    return check_partition(partition_of_part(name));
  }
  uint32_t partition_of_change(const kvstore::Change& change) const {
    return is_part(change.role) ? partition_of_part(change.key) : partition_of(change.key);
  }
  static kvstore::KeyInfo info_of(const kvstore::Entry& entry) {
    return {entry.version, entry.expires_ms, entry.value.size(), entry.role};
  }
  const kvstore::Entry* live(const std::string& key) const {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    const int64_t expires_ms = found->second.expires_ms;
    const bool expired = expires_ms != 0 && expires_ms <= loop_.clock().wall_ns() / kMillisecond;
    return expired ? nullptr : &found->second;
  }
  void apply_one(kvstore::Change& change, uint64_t version) {
    using Kind = kvstore::Change::Kind;
    if (is_part(change.role)) return apply_part(change, version);
    const auto found = entries_.find(change.key);
    if (change.kind == Kind::put) {
      put(change.key, std::move(change.value), change.expires_ms);
      entries_[change.key].role = change.role;
      entries_[change.key].version = version;
    } else if (change.kind == Kind::remove) {
      entries_.erase(change.key);
    } else if (found != entries_.end()) {
      found->second.expires_ms = change.expires_ms;
      found->second.version = version;
    }
  }

  void apply_part(kvstore::Change& change, uint64_t version) {
    parts_.erase(change.key);
    if (change.kind == kvstore::Change::Kind::remove) return;
    kvstore::Entry& part = parts_[change.key];
    part.value = std::move(change.value);
    part.version = version;
    part.role = change.role;
  }

  Loop& loop_;
  std::map<std::string, kvstore::Entry> entries_;
  std::map<std::string, kvstore::Entry> parts_;
  std::map<std::string, uint64_t> reserved_;  // versions
  uint64_t version_ = 0;
};

}  // namespace ff::gateway

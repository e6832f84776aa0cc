// store_view.cc: changes in memory on top of what the store has.
#include "storage/gateway/store_view.h"

#include <utility>

#include "platform/base/task_group.h"

namespace ff::gateway {

Error wrong_type() {
  return fail(Errc::usage, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

std::optional<StoreAccess::CachedKey> StoreAccess::find_cached(std::string_view key) const {
  const auto info = store.find(key);
  if (!info) return std::nullopt;
  if (!*info) return CachedKey();
  const std::string* const value = cache.find(key, (*info)->version);
  if (value == nullptr) return std::nullopt;
  return CachedKey{**info, value};
}

// What other owners do with versions meanwhile is not known.
Error StoreAccess::reply_of(std::string_view key, const Error& error) const {
  if (error.code != Errc::stale) return reply_of(error);
  cache.clear();
  const uint32_t slot = kvstore::redis_slot(key);
  const std::string owner = store.owner(store.partition_of(key));
  if (owner.empty()) return fail(Errc::busy, "CLUSTERDOWN Hash slot {} is not served", slot);
  if (owner != address) return fail(error.code, "MOVED {} {}", slot, owner);
  // A former process with this address: nobody knows yet that it has ended.
  return fail(Errc::busy, "LOADING the gateway takes over slot {} within seconds", slot);
}

// A lease that has ended will be renewed, or another process continues.
Error StoreAccess::reply_of(const Error& error) {
  if (error.code == Errc::stale) return fail(Errc::busy, "CLUSTERDOWN {}", error.message);
  const bool full = error.code == Errc::disk_full;
  return fail(error.code, "{} {}", full ? "MISCONF" : "ERR", error.message);
}

Result<std::vector<uint32_t>> StoreAccess::own_partitions() const {
  std::vector<uint32_t> own;
  for (uint32_t i = 0; i < store.partitions(); i++) {
    const bool owned = store.owned(i);
    const std::string owner = store.owner(i);
    if (owned) own.push_back(i);
    if (owned || (!owner.empty() && owner != address)) continue;
    return fail(Errc::busy, "CLUSTERDOWN Partition {} is not served", i);
  }
  return own;
}

const kvstore::Change* StoreView::own_change(const std::string& key) const {
  const auto found = changes_.find(key);
  return found == changes_.end() ? nullptr : &found->second;
}

Result<std::optional<int64_t>> StoreView::find_expiry(const std::string& key) {
  using Kind = kvstore::Change::Kind;
  if (const auto* const own = own_change(key)) {
    if (own->kind == Kind::remove) return std::optional<int64_t>();
    return std::optional(own->expires_ms);
  }
  const auto found = store_.find(key);
  if (!found) return access_.reply_of(key, found.error());
  versions_.try_emplace(key, *found ? (*found)->version : 0);
  if (!*found) return std::optional<int64_t>();
  return std::optional((*found)->expires_ms);
}

Task<Result<std::optional<StoreView::StoredValue>>> StoreView::get(std::string key) {
  using Kind = kvstore::Change::Kind;
  std::optional<StoredValue> value;
  const auto* const own = own_change(key);
  if (own != nullptr && own->kind == Kind::remove) co_return value;
  if (own != nullptr && own->kind == Kind::put) {
    value.emplace(StoredValue{own->value, own->expires_ms});
    co_return value;
  }
  if (const auto cached = access_.find_cached(key)) {
    versions_.try_emplace(key, cached->info.version);
    if (cached->value == nullptr) co_return value;
    value.emplace(StoredValue{*cached->value, cached->info.expires_ms});
    if (own != nullptr) value->expires_ms = own->expires_ms;
    co_return value;
  }
  auto found = co_await store_.get(key);
  if (!found) co_return access_.reply_of(key, found.error());
  versions_.try_emplace(key, *found ? (*found)->version : 0);
  if (!*found) co_return value;
  access_.cache.put(key, (*found)->version, (*found)->value);
  value.emplace(StoredValue{std::move((*found)->value), (*found)->expires_ms});
  if (own != nullptr) value->expires_ms = own->expires_ms;
  co_return value;
}

Task<Result<std::vector<std::optional<std::string>>>> StoreView::get_strings(
    std::vector<std::string> keys) {
  std::vector<std::optional<std::string>> values(keys.size());
  if (changed()) {  // in a transaction
    for (size_t i = 0; i < keys.size(); i++) {
      auto value = co_await get(std::move(keys[i]));
      if (!value) co_return std::move(value).error();
      if (!*value || stored_type((*value)->bytes) != ValueType::string) continue;
      values[i] = decode_string(std::move((*value)->bytes));
    }
    co_return values;
  }
  std::vector<size_t> places;  // of the keys that the store must be asked for
  std::vector<std::string> asked;
  for (size_t i = 0; i < keys.size(); i++) {
    const auto cached = access_.find_cached(keys[i]);
    if (!cached) {
      places.push_back(i);
      asked.push_back(keys[i]);
    } else if (cached->value != nullptr && stored_type(*cached->value) == ValueType::string) {
      values[i] = decode_string(*cached->value);
    }
  }
  auto found = co_await store_.get_many(asked);
  for (size_t i = 0; i < asked.size(); i++) {
    if (!found[i]) co_return access_.reply_of(asked[i], found[i].error());
    if (!*found[i]) continue;
    kvstore::Entry& entry = **found[i];
    access_.cache.put(asked[i], entry.version, entry.value);
    if (stored_type(entry.value) != ValueType::string) continue;
    values[places[i]] = decode_string(std::move(entry.value));
  }
  co_return values;
}

Task<Result<std::optional<StoreView::StoredValue>>> StoreView::get_string(std::string key) {
  auto value = co_await get(std::move(key));
  if (!value || !*value) co_return value;
  if (stored_type((*value)->bytes) != ValueType::string) co_return wrong_type();
  (*value)->bytes = decode_string(std::move((*value)->bytes));
  co_return value;
}

Task<Result<HashValue>> StoreView::get_hash(std::string key, int64_t& expires_ms) {
  FF_CO_TRY(const auto value, co_await get(std::move(key)));
  expires_ms = value ? value->expires_ms : 0;
  if (!value) co_return HashValue();
  if (stored_type(value->bytes) != ValueType::hash) co_return wrong_type();
  co_return HashValue::decode(value->bytes);
}

void StoreView::put(const std::string& key, std::string bytes, int64_t expires_ms) {
  if (has_passed(expires_ms)) return remove(key);
  auto& change = changes_[key];
  change.kind = kvstore::Change::Kind::put;
  change.value = std::move(bytes);
  change.expires_ms = expires_ms;
}

void StoreView::put_hash(const std::string& key, const HashValue& hash, int64_t expires_ms) {
  if (hash.fields().empty()) return remove(key);
  put(key, hash.encode(), expires_ms);
}

void StoreView::remove(const std::string& key) {
  auto& change = changes_[key];
  change.kind = kvstore::Change::Kind::remove;
  change.value.clear();
  change.expires_ms = 0;
}

void StoreView::expire(const std::string& key, int64_t expires_ms) {
  if (has_passed(expires_ms)) return remove(key);
  const auto [change, is_new] = changes_.try_emplace(key);
  if (is_new) change->second.kind = kvstore::Change::Kind::expire;
  change->second.expires_ms = expires_ms;
}

std::vector<kvstore::Precondition> StoreView::preconditions() const {
  std::vector<kvstore::Precondition> all;
  for (const auto& [key, change] : changes_) {
    const auto read = versions_.find(key);
    if (read != versions_.end()) all.push_back({key, read->second});
  }
  return all;
}

Task<Result<void>> StoreView::commit_partition(std::vector<kvstore::Change> changes) {
  const std::string key = changes.front().key;
  const auto applied = co_await store_.apply(std::move(changes));
  if (!applied) co_return access_.reply_of(key, applied.error());
  co_return Result<void>();
}

Task<Result<bool>> StoreView::commit() {
  if (changes_.empty()) co_return true;
  auto conditions = preconditions();
  std::map<uint32_t, std::vector<kvstore::Change>> partitions;
  const std::string first = changes_.begin()->first;
  std::vector<std::string> changed;
  for (auto& [key, change] : changes_) {
    change.key = key;
    if (access_.watched.keys() > 0) changed.push_back(key);
    partitions[store_.partition_of(key)].push_back(std::move(change));
  }
  changes_.clear();
  if (partitions.size() == 1) {
    auto& changes = partitions.begin()->second;
    const auto applied = co_await store_.apply(std::move(changes), std::move(conditions));
    if (!applied) co_return access_.reply_of(first, applied.error());
    if (applied->done) note_changes(changed);
    co_return applied->done;
  }
  TaskGroup writing(access_.loop);
  for (auto& [partition, changes] : partitions) writing.add(commit_partition(std::move(changes)));
  const auto written = co_await writing.join();
  note_changes(changed);
  FF_CO_TRY(written);
  co_return true;
}

void StoreView::note_changes(const std::vector<std::string>& keys) const {
  for (const std::string& key : keys) access_.watched.note_change(key);
}

}  // namespace ff::gateway

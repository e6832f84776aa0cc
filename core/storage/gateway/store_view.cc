// store_view.cc: changes in memory on top of what the store has.
#include "storage/gateway/store_view.h"

#include <utility>

#include "platform/base/check.h"
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

Error StoreAccess::reply_of_part(std::string_view name, const Error& error) const {
  if (error.code != Errc::stale) return reply_of(error);
  cache.clear();
  const uint32_t slot = kvstore::slot_of_part(name);
  return fail(Errc::busy, "CLUSTERDOWN Hash slot {} is not served", slot);
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
    note_head(key, *cached->value);
    value.emplace(StoredValue{*cached->value, cached->info.expires_ms});
    if (own != nullptr) value->expires_ms = own->expires_ms;
    co_return value;
  }
  auto found = co_await store_.get(key);
  if (!found) co_return access_.reply_of(key, found.error());
  versions_.try_emplace(key, *found ? (*found)->version : 0);
  if (!*found) co_return value;
  access_.cache.put(key, (*found)->version, (*found)->value);
  note_head(key, (*found)->value);
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
  change.role = kvstore::RecordRole::plain;
  change.value = std::move(bytes);
  change.expires_ms = expires_ms;
}

void StoreView::put_head(const std::string& key, std::string head, int64_t expires_ms) {
  std::string_view rest = head;
  const auto parts = PartSpace::take(rest, kvstore::redis_slot(key));
  FF_CHECK(parts.ok());
  collections_.insert_or_assign(parts->id, *parts);
  put(key, std::move(head), expires_ms);
  auto& change = changes_[key];
  if (change.kind == kvstore::Change::Kind::put) change.role = kvstore::RecordRole::owner;
}

void StoreView::remove_empty(const std::string& key, const PartSpace& parts) {
  empty_.insert(parts.id);
  remove(key);
}

Task<Result<std::optional<std::string>>> StoreView::get_part(std::string name) {
  std::optional<std::string> bytes;
  const auto own = parts_.find(name);
  if (own != parts_.end()) co_return own->second;
  const auto info = store_.find_part(name);
  if (!info) co_return access_.reply_of_part(name, info.error());
  if (!*info) co_return bytes;
  if (const auto* const cached = access_.cache.find(name, (*info)->version)) {
    bytes = *cached;
    co_return bytes;
  }
  auto found = co_await store_.get_part(name);
  if (!found) co_return access_.reply_of_part(name, found.error());
  if (!*found) co_return bytes;
  access_.cache.put(name, (*found)->version, (*found)->value);
  bytes = std::move((*found)->value);
  co_return bytes;
}

void StoreView::put_hash(const std::string& key, const HashValue& hash, int64_t expires_ms) {
  if (hash.fields().empty()) return remove(key);
  put(key, hash.encode(), expires_ms);
}

void StoreView::remove(const std::string& key) {
  auto& change = changes_[key];
  change.kind = kvstore::Change::Kind::remove;
  change.role = kvstore::RecordRole::plain;
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

Task<Result<void>> StoreView::commit_partition(std::vector<kvstore::Change> changes,
                                               std::vector<kvstore::Precondition> conditions) {
  const std::string key = changes.front().key;
  const auto applied = co_await store_.apply(std::move(changes), std::move(conditions));
  if (!applied) co_return access_.reply_of(key, applied.error());
  if (!applied->done) co_return fail(Errc::stale, "TRYAGAIN the keys change too often");
  co_return Result<void>();
}

// Remembers the collection that lies at a key in the store.
bool StoreView::note_head(const std::string& key, std::string_view stored) {
  const ValueType type = stored_type(stored);
  if (type == ValueType::string || type == ValueType::hash) return false;
  const auto parts = PartSpace::take(stored, kvstore::redis_slot(key));
  if (parts) stored_heads_.try_emplace(key, *parts);
  return parts.ok();
}

// Likewise, unless it is known; also of a key that has expired.
Task<Result<void>> StoreView::find_stored_head(std::string key) {
  if (stored_heads_.contains(key)) co_return Result<void>();
  const auto info = store_.find_owner(key);
  if (!info) co_return access_.reply_of(key, info.error());
  if (!*info) co_return Result<void>();
  versions_.try_emplace(key, has_passed((*info)->expires_ms) ? 0 : (*info)->version);
  const auto found = co_await store_.get_owner(key);
  if (!found) co_return access_.reply_of(key, found.error());
  if (*found && !note_head(key, (*found)->value)) co_return damaged_value();
  co_return Result<void>();
}

// What the store needs to know of collections whose last key goes with these changes. The pages of
// one that is renamed stay.
Task<Result<std::vector<kvstore::Change>>> StoreView::leave_collections() {
  auto gone = collections_;
  for (const auto& [key, change] : changes_) {
    if (change.kind == kvstore::Change::Kind::expire) continue;
    FF_CO_TRY(co_await find_stored_head(key));
    const auto stored = stored_heads_.find(key);
    if (stored != stored_heads_.end()) gone.try_emplace(stored->second.id, stored->second);
  }
  for (const auto& [key, change] : changes_) {
    if (change.role != kvstore::RecordRole::owner) continue;
    std::string_view head = change.value;
    gone.erase(PartSpace::take(head, 0)->id);
  }
  for (const uint64_t id : empty_) gone.erase(id);
  std::vector<kvstore::Change> leftovers;
  for (const auto& [id, parts] : gone) {
    kvstore::Change change;
    change.key = parts.leftover_name();
    change.value = parts.encode_head(ValueType::set);
    change.role = kvstore::RecordRole::leftover;
    leftovers.push_back(std::move(change));
  }
  co_return leftovers;
}

// The changes by partition. Those of parts come behind those of keys.
StoreView::ByPartition StoreView::take_changes(std::vector<kvstore::Change> leftovers) {
  ByPartition partitions;
  for (auto& [key, change] : changes_) {
    change.key = key;
    partitions[store_.partition_of(key)].push_back(std::move(change));
  }
  for (auto& [name, bytes] : parts_) {
    kvstore::Change change;
    change.kind = bytes ? kvstore::Change::Kind::put : kvstore::Change::Kind::remove;
    change.key = name;
    if (bytes) change.value = std::move(*bytes);
    change.role = kvstore::RecordRole::part;
    partitions[store_.partition_of_part(name)].push_back(std::move(change));
  }
  for (kvstore::Change& change : leftovers) {
    const uint32_t partition = store_.partition_of_part(change.key);
    partitions[partition].push_back(std::move(change));
  }
  changes_.clear();
  parts_.clear();
  return partitions;
}

// Heads and pages that are written: the next command of the collection needs them.
std::vector<std::pair<std::string, std::string>> StoreView::heads_and_pages() const {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [key, change] : changes_) {
    if (change.role == kvstore::RecordRole::owner) all.emplace_back(key, change.value);
  }
  for (const auto& [name, bytes] : parts_) {
    if (bytes) all.emplace_back(name, *bytes);
  }
  return all;
}

// Keys whose value is replaced or removed, and those that handlers have announced.
std::vector<std::string> StoreView::keys_to_announce() const {
  if (access_.waits.commands() == 0) return {};
  std::vector<std::string> keys = announced_;
  for (const auto& [key, change] : changes_) {
    if (change.role != kvstore::RecordRole::owner) keys.push_back(key);
  }
  return keys;
}

Task<Result<bool>> StoreView::commit() {
  if (changes_.empty()) co_return true;
  FF_CO_TRY(auto leftovers, co_await leave_collections());
  auto conditions = preconditions();
  const std::string first = changes_.begin()->first;
  std::vector<std::string> changed;
  if (access_.watched.keys() > 0) {
    for (const auto& [key, change] : changes_) changed.push_back(key);
  }
  const auto announced = keys_to_announce();
  const auto written_pages = heads_and_pages();
  auto partitions = take_changes(std::move(leftovers));
  if (partitions.size() == 1) {
    auto& changes = partitions.begin()->second;
    const auto applied = co_await store_.apply(std::move(changes), std::move(conditions));
    if (!applied) co_return access_.reply_of(first, applied.error());
    if (!applied->done) co_return false;
    for (const auto& [name, bytes] : written_pages) {
      access_.cache.put(name, applied->version, bytes);
    }
    note_changes(changed, announced);
    co_return true;
  }
  std::erase_if(conditions, [&](const auto& one) { return !stored_heads_.contains(one.key); });
  TaskGroup writing(access_.loop);
  for (auto& [partition, changes] : partitions) {
    std::vector<kvstore::Precondition> own;
    for (const auto& one : conditions) {
      if (store_.partition_of(one.key) == partition) own.push_back(one);
    }
    writing.add(commit_partition(std::move(changes), std::move(own)));
  }
  const auto written = co_await writing.join();
  note_changes(changed, announced);
  FF_CO_TRY(written);
  co_return true;
}

void StoreView::note_changes(const std::vector<std::string>& changed,
                             const std::vector<std::string>& announced) const {
  for (const std::string& key : changed) access_.watched.note_change(key);
  for (const std::string& key : announced) access_.waits.announce(key);
}

}  // namespace ff::gateway

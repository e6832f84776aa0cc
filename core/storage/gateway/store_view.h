// The store as one command, or one transaction (MULTI), sees it: with its own changes, which
// commit() writes. The caller holds the locks of all keys (key_locks.h).
//
// What commit() writes in one partition depends on the versions that the command has read, so that
// a change from elsewhere (the key expires or is evicted, another process owned the partition
// meanwhile) is not overwritten: then the caller runs the command again.
//
// A collection (redis_value.h) has parts. Each change of them changes the head, too, so the version
// of the key stands for all of them. When the last key of a collection goes, commit() leaves a
// record that names its pages, which leftover_sweep.h removes later: so DEL costs the same whatever
// was there. The store does the same for nobody: a head that expires is a leftover itself.
//
// The messages of all errors are replies to Redis clients: "MISCONF ...", "MOVED 1 host:port".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/task.h"
#include "storage/gateway/key_waits.h"
#include "storage/gateway/redis_value.h"
#include "storage/gateway/value_cache.h"
#include "storage/gateway/watched_keys.h"
#include "storage/kvstore/store.h"

namespace ff::gateway {

// The reply "WRONGTYPE ...".
Error wrong_type();

// A store, and what a view of it needs besides.
struct StoreAccess {
  // What is known of a key without a read of the disk.
  struct CachedKey {
    kvstore::KeyInfo info;               // its version is 0: there is no such key
    const std::string* value = nullptr;  // until the next change of the cache
  };

  kvstore::Store& store;
  Loop& loop;           // of the store
  std::string address;  // where clients reach this process: kvstore::Options::address
  ValueCache& cache;
  WatchedKeys& watched;
  KeyWaits& waits;

  // Empty: the store must be asked.
  std::optional<CachedKey> find_cached(std::string_view key) const;
  // The reply for an error of the store about this key. Errc::busy: nobody serves the key now, but
  // this process or another one will soon.
  Error reply_of(std::string_view key, const Error& error) const;
  // Likewise, about a part.
  Error reply_of_part(std::string_view name, const Error& error) const;
  // Likewise, of one about a partition.
  static Error reply_of(const Error& error);
  // The partitions that this process serves. Errc::busy: nobody serves one of the others now.
  Result<std::vector<uint32_t>> own_partitions() const;
};

class StoreView {
 public:
  struct StoredValue {
    std::string bytes;       // as they lie in the store
    int64_t expires_ms = 0;  // 0: never
  };

  // `now_ms`: wall-clock time of the command. The store outlives the view.
  StoreView(const StoreAccess& access, int64_t now_ms)
      : access_(access), store_(access.store), now_ms_(now_ms) {}

  const StoreAccess& access() const { return access_; }
  kvstore::Store& store() { return store_; }
  int64_t now_ms() const { return now_ms_; }

  // The expiry of a key, 0: never; empty: there is no such key.
  Result<std::optional<int64_t>> find_expiry(const std::string& key);
  // Empty: there is no such key.
  Task<Result<std::optional<StoredValue>>> get(std::string key);
  // The strings of several keys, empty for a missing key and another type; read at once.
  Task<Result<std::vector<std::optional<std::string>>>> get_strings(std::vector<std::string> keys);
  // Its string, decoded in `bytes`. Errc::usage with wrong_type(): it has another type.
  Task<Result<std::optional<StoredValue>>> get_string(std::string key);
  // Likewise; a missing key is an empty hash. `expires_ms` is set.
  Task<Result<HashValue>> get_hash(std::string key, int64_t& expires_ms);

  // `bytes` as they lie in the store. A time that has passed removes the key.
  void put(const std::string& key, std::string bytes, int64_t expires_ms);
  void put_string(const std::string& key, std::string value, int64_t expires_ms) {
    put(key, encode_string(std::move(value)), expires_ms);
  }
  // An empty hash removes the key.
  void put_hash(const std::string& key, const HashValue& hash, int64_t expires_ms);
  void remove(const std::string& key);
  // The head of a collection: the former one, or that of another collection.
  void put_head(const std::string& key, std::string head, int64_t expires_ms);
  // Removes the key of a collection whose pages are all removed already.
  void remove_empty(const std::string& key, const PartSpace& parts);
  // Pages of collections, by their names.
  Task<Result<std::optional<std::string>>> get_part(std::string name);
  void put_part(const std::string& name, std::string bytes) { parts_[name] = std::move(bytes); }
  void remove_part(const std::string& name) { parts_[name] = std::nullopt; }
  // Commands that wait for the key run again after the commit. It is so anyway if the value of the
  // key is replaced or removed.
  void announce(const std::string& key) { announced_.push_back(key); }
  // Of an existing key.
  void expire(const std::string& key, int64_t expires_ms);

  bool changed() const { return !changes_.empty(); }
  // Writes the changes: those of one partition together or not at all. False: all are of one
  // partition, a version that the command has read is another one now, and nothing is written.
  Task<Result<bool>> commit();

 private:
  const kvstore::Change* own_change(const std::string& key) const;
  bool has_passed(int64_t expires_ms) const { return expires_ms != 0 && expires_ms <= now_ms_; }
  std::vector<kvstore::Precondition> preconditions() const;
  Task<Result<void>> commit_partition(std::vector<kvstore::Change> changes,
                                      std::vector<kvstore::Precondition> conditions);
  bool note_head(const std::string& key, std::string_view stored);
  Task<Result<void>> find_stored_head(std::string key);
  Task<Result<std::vector<kvstore::Change>>> leave_collections();
  using ByPartition = std::map<uint32_t, std::vector<kvstore::Change>>;
  ByPartition take_changes(std::vector<kvstore::Change> leftovers);
  std::vector<std::pair<std::string, std::string>> heads_and_pages() const;
  std::vector<std::string> keys_to_announce() const;
  void note_changes(const std::vector<std::string>& changed,
                    const std::vector<std::string>& announced) const;

  const StoreAccess& access_;
  kvstore::Store& store_;
  const int64_t now_ms_;
  std::map<std::string, kvstore::Change> changes_;
  std::map<std::string, uint64_t> versions_;  // that were read; 0: there was no such key
  std::map<std::string, std::optional<std::string>> parts_;  // changes; empty: removed
  std::map<std::string, PartSpace> stored_heads_;            // of keys that were read
  std::map<uint64_t, PartSpace> collections_;                // whose head was put
  std::set<uint64_t> empty_;                                 // of which no page is left
  std::vector<std::string> announced_;
};

}  // namespace ff::gateway

// The values that were read last, in memory, so that a hot key needs no read of the disk. Who reads
// asks the index of the store for the version of the key first: a value of another version does not
// count, whoever has changed the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ff::gateway {

class ValueCache {
 public:
  // Keeps at most so many bytes of keys and values.
  explicit ValueCache(size_t bytes_max) : bytes_max_(bytes_max) {}
  ValueCache(const ValueCache&) = delete;
  ValueCache& operator=(const ValueCache&) = delete;

  // Null: it is not here. Valid until the next change of the cache.
  const std::string* find(std::string_view key, uint64_t version);
  // Drops the values that were not used for longest. One that would take more than a sixteenth of
  // the cache is not kept.
  void put(std::string_view key, uint64_t version, std::string_view value);
  void clear();

  size_t bytes() const { return bytes_; }

 private:
  struct CachedValue {
    std::string key, value;
    uint64_t version = 0;
  };
  using Values = std::list<CachedValue>;
  static size_t bytes_of(std::string_view key, std::string_view value);
  void erase(Values::iterator at);

  const size_t bytes_max_;
  size_t bytes_ = 0;
  Values values_;  // the last used one first
  std::unordered_map<std::string_view, Values::iterator> by_key_;
};

}  // namespace ff::gateway

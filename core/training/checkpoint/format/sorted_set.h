// A set of small keys for millions of chunks: a sorted vector needs 1-2 times the size of its keys,
// a hash set 4-8 times. Add all keys first, then look them up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "platform/simd/digest.h"

namespace ff::checkpoint {

template <class Key>
class SortedSet {
 public:
  // Removes duplicates whenever the vector has doubled, so that many checkpoints with common chunks
  // need no more memory than one.
  void add(const Key& key) {
    keys_.push_back(key);
    if (keys_.size() >= compact_at_) sort_unique();
  }
  // Between the last add() and the first lookup.
  void sort_unique() {
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
    compact_at_ = std::max(kCompactMin, 2 * keys_.size());
  }
  void clear() { *this = {}; }

  const std::vector<Key>& keys() const { return keys_; }
  // The position in keys().
  std::optional<size_t> find(const Key& key) const {
    const auto at = std::lower_bound(keys_.begin(), keys_.end(), key);
    if (at == keys_.end() || *at != key) return std::nullopt;
    return at - keys_.begin();
  }
  bool contains(const Key& key) const { return find(key).has_value(); }

 private:
  static constexpr size_t kCompactMin = size_t{1} << 16;
  std::vector<Key> keys_;
  size_t compact_at_ = kCompactMin;
};

// The first 16 bytes of a digest: all of xxh128, and enough of sha256 to be collision-resistant.
struct ChunkKey {
  uint64_t first = 0;
  uint64_t second = 0;
  friend auto operator<=>(const ChunkKey&, const ChunkKey&) = default;
};

inline ChunkKey chunk_key(const simd::Digest& digest) {
  return {load_le<uint64_t>(digest.bytes.data()), load_le<uint64_t>(digest.bytes.data() + 8)};
}

}  // namespace ff::checkpoint

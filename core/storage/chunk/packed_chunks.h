// Chunks at rest in a compact ordered map: at most 64 bytes of memory each.
//
// A chunk rests when it has a committed version whose bytes are all in their own places in one
// block, and nothing else (chunk_table.h). Sorted arrays of up to 256 chunks, found through a map.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "storage/chunk/chunk.h"
#include "storage/chunk/layout.h"

namespace ff::chunk {

struct PackedChunk {
  ChunkId id = {};
  uint64_t version = 0;
  uint64_t chain_version = 0;
  uint32_t length = 0;
  uint32_t checksum = 0;
  uint32_t block = 0;  // number; with length 0 there is no block
  SizeClass size_class = 0;

  VersionState state() const {
    return {.version = version, .length = length, .checksum = checksum, .removed = false};
  }
  BlockLocation location() const { return {.size_class = size_class, .number = block}; }
};
static_assert(sizeof(PackedChunk) == 48);

class PackedChunks {
 public:
  size_t size() const { return size_; }
  // Null when the chunk is not here. Pointers are valid until the next change.
  const PackedChunk* find(const ChunkId& id) const;
  // The first chunk at or after `id`, and the last one before it; null when there is none.
  const PackedChunk* first_from(const ChunkId& id) const;
  const PackedChunk* last_before(const ChunkId& id) const;
  // The chunk must not be here.
  void insert(const PackedChunk& chunk);
  // The chunk must be here.
  void erase(const ChunkId& id);

  template <class Visit>
  void each(const Visit& visit) const {
    for (const auto& [begin, leaf] : leaves_) {
      for (const PackedChunk& chunk : leaf) visit(chunk);
    }
  }

 private:
  using Leaf = std::vector<PackedChunk>;  // ascending, not empty
  using Leaves = std::map<ChunkId, Leaf>;
  Leaves::iterator leaf_of(const ChunkId& id);
  Leaves::const_iterator leaf_of(const ChunkId& id) const;

  // First id that a leaf may hold -> leaf.
  Leaves leaves_;
  size_t size_ = 0;
};

}  // namespace ff::chunk

// The chunks of one target in memory, in the order of their ids. Chunks at rest take at most 64
// bytes each (packed_chunks.h); chunks in use have objects for their versions and blocks.
//
// find() brings a chunk into use; pack_some() lets chunks rest again. So the memory of a disk is
// that of the packed chunks, and of those that were used lately.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "storage/chunk/block_store.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/chunk_store_types.h"
#include "storage/chunk/chunk_version.h"
#include "storage/chunk/packed_chunks.h"

namespace ff::chunk {

struct Chunk {
  ChunkVersions versions;
  uint64_t undo_epoch = 0;     // epoch of the newest undo row
  uint64_t changed_epoch = 0;  // of the last change
  bool busy = false;           // being changed
  // Called once when it is not busy any more, before the next change.
  std::function<void(Chunk&)> when_released = {};
};

class ChunkTable {
 public:
  // At most `used_max` chunks stay in use for want of a reason, so that those that are used
  // often are not packed each time. `blocks` must outlive it.
  ChunkTable(BlockStore& blocks, size_t used_max) : blocks_(blocks), used_max_(used_max) {}

  size_t size() const { return packed_.size() + used_.size(); }
  bool contains(const ChunkId& id) const {
    return used_.contains(id) || packed_.find(id) != nullptr;
  }
  // Adds a chunk whose row open() has read; its blocks must not be in use. Errors: corrupt
  // (another chunk has its block).
  Result<void> load_resting(const ChunkId& id, const ChunkRecord& record);
  // Whether load_resting() is for this chunk: all its bytes are in the files, in one block.
  bool can_rest(const ChunkRecord& record) const;
  // Null when there is none. The pointer is valid until pack_some(), and longer while the chunk is
  // busy, has data in the log, or somebody holds its block.
  Chunk* find(const ChunkId& id);
  Chunk& find_or_create(const ChunkId& id);
  void erase(const ChunkId& id);

  // These leave chunks at rest. An absent chunk (it is being created) counts.
  std::optional<ChunkState> state(const ChunkId& id) const;
  std::optional<ChunkInfo> first_from(const ChunkId& id) const;
  std::optional<ChunkInfo> last_before(const ChunkId& id) const;
  const std::map<ChunkId, Chunk>& used() const { return used_; }
  // Calls `visit` with id, length and block (nothing: none) of each committed version, and
  // whether the chunk is suspect.
  template <class Visit>
  void each(const Visit& visit) const {
    packed_.each([&](const PackedChunk& chunk) {
      visit(chunk.id, uint64_t{chunk.length},
            chunk.length > 0 ? std::optional(chunk.location()) : std::nullopt, false);
    });
    for (const auto& [id, chunk] : used_) {
      const ChunkVersion& version = chunk.versions.committed;
      visit(id, version.state.length, version.block.location(), chunk.versions.suspect());
    }
  }

  // Packs some chunks that rest, if more than used_max are in use. `durable_epoch`: changes of
  // later epochs are not durable.
  void pack_some(uint64_t durable_epoch);

 private:
  void pack(std::map<ChunkId, Chunk>::iterator at, uint64_t durable_epoch);

  BlockStore& blocks_;
  const size_t used_max_;
  PackedChunks packed_;
  std::map<ChunkId, Chunk> used_;
  ChunkId next_to_pack_;
};

}  // namespace ff::chunk

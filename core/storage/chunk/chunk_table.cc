// chunk_table.cc: chunks between rest and use.
#include "storage/chunk/chunk_table.h"

#include <iterator>
#include <utility>

namespace ff::chunk {
namespace {

// Chunks that pack_some() looks at: more than one, so that it keeps up with find().
constexpr int kPackedAtOnce = 4;

uint64_t packed_units(const PackedChunk& chunk) {
  const uint64_t unit_bytes = checksum_unit_bytes(chunk.size_class);
  return align_up(chunk.length, unit_bytes) / unit_bytes;
}

PackedChunk packed(const ChunkId& id, const VersionState& state, uint64_t chain_version,
                   const std::optional<BlockLocation>& block) {
  return {.id = id,
          .version = state.version,
          .chain_version = chain_version,
          .length = static_cast<uint32_t>(state.length),
          .checksum = state.checksum,
          .block = block ? static_cast<uint32_t>(block->number) : 0,
          .size_class = block ? block->size_class : SizeClass{0}};
}

ChunkInfo info_of(const PackedChunk& chunk) {
  return {.id = chunk.id,
          .state = {.committed = chunk.state(), .chain_version = chunk.chain_version}};
}

}  // namespace

bool ChunkTable::can_rest(const ChunkRecord& record) const {
  const VersionRecord& version = record.committed;
  if (record.pending || version.overlay_block || version.state.removed ||
      version.state.version == 0 || version.block.has_value() != (version.state.length > 0)) {
    return false;
  }
  return !version.block ||
         blocks_.is_stored(*version.block,
                           packed_units(packed({}, version.state, 0, version.block)));
}

Result<void> ChunkTable::load_resting(const ChunkId& id, const ChunkRecord& record) {
  const VersionRecord& version = record.committed;
  if (version.block) FF_TRY(blocks_.load_detached(*version.block));
  packed_.insert(packed(id, version.state, record.chain_version, version.block));
  return {};
}

Chunk* ChunkTable::find(const ChunkId& id) {
  const auto found = used_.find(id);
  if (found != used_.end()) return &found->second;
  const PackedChunk* const resting = packed_.find(id);
  if (resting == nullptr) return nullptr;
  Chunk& chunk = used_[id];
  chunk.versions.committed.state = resting->state();
  chunk.versions.chain_version = resting->chain_version;
  if (resting->length > 0) {
    chunk.versions.committed.block = blocks_.attach(resting->location(), packed_units(*resting));
  }
  packed_.erase(id);
  return &chunk;
}

Chunk& ChunkTable::find_or_create(const ChunkId& id) {
  Chunk* const found = find(id);
  return found == nullptr ? used_[id] : *found;
}

void ChunkTable::erase(const ChunkId& id) {
  if (find(id) != nullptr) used_.erase(id);
}

std::optional<ChunkState> ChunkTable::state(const ChunkId& id) const {
  const auto found = used_.find(id);
  if (found != used_.end()) return state_of(found->second.versions);
  const PackedChunk* const resting = packed_.find(id);
  return resting == nullptr ? std::nullopt : std::optional(info_of(*resting).state);
}

std::optional<ChunkInfo> ChunkTable::first_from(const ChunkId& id) const {
  const auto used = used_.lower_bound(id);
  const PackedChunk* const resting = packed_.first_from(id);
  if (resting != nullptr && (used == used_.end() || resting->id < used->first)) {
    return info_of(*resting);
  }
  if (used == used_.end()) return std::nullopt;
  return ChunkInfo{.id = used->first, .state = state_of(used->second.versions)};
}

std::optional<ChunkInfo> ChunkTable::last_before(const ChunkId& id) const {
  const auto after = used_.lower_bound(id);
  const PackedChunk* const resting = packed_.last_before(id);
  if (after == used_.begin()) {
    return resting == nullptr ? std::nullopt : std::optional(info_of(*resting));
  }
  const auto used = std::prev(after);
  if (resting != nullptr && used->first < resting->id) return info_of(*resting);
  return ChunkInfo{.id = used->first, .state = state_of(used->second.versions)};
}

// A block may have units that its chunk does not have any more. They may be written again once
// the chunk rests: the change that dropped them is durable, and no reader holds the block.
void ChunkTable::pack(std::map<ChunkId, Chunk>::iterator at, uint64_t durable_epoch) {
  Chunk& chunk = at->second;
  ChunkVersion& version = chunk.versions.committed;
  if (chunk.busy || chunk.changed_epoch > durable_epoch || chunk.versions.pending ||
      version.overlay_block || !version.logged.empty() || version.state.removed ||
      version.state.version == 0) {
    return;
  }
  const auto location = version.block.location();
  if (version.block && !blocks_.detach(version.block)) return;
  packed_.insert(packed(at->first, version.state, chunk.versions.chain_version, location));
  used_.erase(at);
}

void ChunkTable::pack_some(uint64_t durable_epoch) {
  for (int i = 0; i < kPackedAtOnce && used_.size() > used_max_; ++i) {
    auto at = used_.lower_bound(next_to_pack_);
    if (at == used_.end()) at = used_.begin();
    next_to_pack_ = next(at->first);
    pack(at, durable_epoch);
  }
}

}  // namespace ff::chunk

// A version of a chunk in memory: its state, the blocks that hold its data, and the checksum units
// whose data is still in the log of the metadata. Copies share the blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "storage/chunk/block_store.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/chunk_record.h"

namespace ff::chunk {

struct ChunkVersion {
  VersionState state;
  BlockRef block;                 // null when the length is 0
  BlockRef overlay_block;         // holds replaced checksum units; null when there are none
  std::vector<Overlay> overlays;  // the replaced units, in ascending order
  // Units in the log, in ascending order; none of them is in `overlays`. What the block has in
  // their place is void.
  std::vector<LoggedUnit> logged = {};

  uint64_t unit_bytes() const { return checksum_unit_bytes(block->location.size_class); }
  uint64_t units() const { return align_up(state.length, unit_bytes()) / unit_bytes(); }
  // The overlay of a checksum unit; null when the unit is in its own place in the block.
  const Overlay* find_overlay(uint64_t unit) const;
  // Null when the unit is not in the log.
  const LoggedUnit* find_logged(uint64_t unit) const;
  // The expected CRC32C of a unit; `crcs` are those of the block.
  uint32_t unit_crc(uint64_t unit, const Crcs& crcs) const;
  // Bytes of the unit that belong to the version.
  uint64_t unit_length(uint64_t unit) const;
  bool suspect() const;
  void set_suspect(bool suspect) const;
};

// Where the data of a checksum unit is.
enum class UnitPlace : uint8_t { block, overlay, log };

// Checksum units that are adjacent both in the chunk and on disk.
struct Extent {
  uint64_t first = 0;  // unit index in the chunk
  uint64_t count = 0;
  UnitPlace place = UnitPlace::block;
  uint64_t at = 0;  // unit index in the block, overlay slot, or LSN
};
// Units [first, end) in ascending order.
std::vector<Extent> extents(const ChunkVersion& version, uint64_t first, uint64_t end);

// Committed and pending version of a chunk. Absent: committed version 0 and nothing pending.
struct ChunkVersions {
  struct Pending {
    ChunkVersion version;
    RequestId request_id;
  };
  ChunkVersion committed;
  uint64_t chain_version = 0;
  int64_t removed_ns = 0;
  std::unique_ptr<Pending> pending;

  bool absent() const { return committed.state.version == 0 && !pending; }
  bool suspect() const { return committed.suspect() || (pending && pending->version.suspect()); }
};

ChunkState state_of(const ChunkVersions& versions);
ChunkRecord record_of(const ChunkVersions& versions);
// Encoded row, without the units in the log, which have rows of their own (logged_rows.h); empty
// when the chunk is absent.
std::string row_of(const ChunkVersions& versions);
// The same with the units in the log.
std::string undo_row_of(const ChunkVersions& versions);

}  // namespace ff::chunk

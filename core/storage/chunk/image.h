// A version of a chunk in memory: its state and the blocks that hold it. Copies share the blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "storage/chunk/blocks.h"
#include "storage/chunk/chunk.h"
#include "storage/chunk/record.h"

namespace ff::chunk {

struct Image {
  VersionState state;
  BlockRef block;             // none when the length is 0
  BlockRef piece_block;       // may hold replaced granules of it
  std::vector<Piece> pieces;  // those, in ascending order

  uint64_t granule() const { return granule_bytes(block->place.of); }
  uint64_t granules() const { return align_up(state.length, granule()) / granule(); }
  // The piece that replaces a granule; null when it lies in its own place.
  const Piece* piece(uint64_t granule) const;
  // The CRC32C that a granule shall have; `crcs` are those of the block.
  uint32_t crc(uint64_t granule, const Crcs& crcs) const;
  // The bytes of a granule that the version has.
  uint64_t bytes_in(uint64_t granule) const;
  bool doubted() const;
  void set_doubted(bool doubted) const;
};

// Granules of an image that lie together on the disk.
struct Run {
  uint64_t first = 0;  // granule of the chunk
  uint64_t count = 0;
  bool in_pieces = false;
  uint64_t at = 0;  // granule of the block, or slot
};
// Granules [first, end) in their order.
std::vector<Run> runs(const Image& image, uint64_t first, uint64_t end);

// All versions of a chunk; version 0 committed and nothing pending: absent.
struct Versions {
  struct Pending {
    Image image;
    Writer writer;
  };
  Image committed;
  uint64_t chain_version = 0;
  int64_t removed_ns = 0;
  std::unique_ptr<Pending> pending;

  bool absent() const { return committed.state.version == 0 && !pending; }
  bool doubted() const { return committed.doubted() || (pending && pending->image.doubted()); }
};

ChunkState state_of(const Versions& versions);
Record record_of(const Versions& versions);
// The body of its row; empty: absent.
std::string row_of(const Versions& versions);

}  // namespace ff::chunk

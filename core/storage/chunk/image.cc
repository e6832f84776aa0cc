// image.cc: where the granules of a version lie, and versions as rows.
#include "storage/chunk/image.h"

#include <algorithm>

namespace ff::chunk {

const Piece* Image::piece(uint64_t granule) const {
  const auto found = std::ranges::lower_bound(pieces, granule, {}, &Piece::granule);
  return found == pieces.end() || found->granule != granule ? nullptr : &*found;
}

uint32_t Image::crc(uint64_t granule, const Crcs& crcs) const {
  const Piece* const replaced = piece(granule);
  return replaced != nullptr ? replaced->crc : crcs[granule];
}

uint64_t Image::bytes_in(uint64_t index) const {
  return std::min(granule(), state.length - index * granule());
}

bool Image::doubted() const {
  return (block && block->doubted) || (piece_block && piece_block->doubted);
}

void Image::set_doubted(bool doubted) const {
  if (block) block->doubted = doubted;
  if (piece_block) piece_block->doubted = doubted;
}

std::vector<Run> runs(const Image& image, uint64_t first, uint64_t end) {
  std::vector<Run> all;
  for (uint64_t index = first; index < end; ++index) {
    const Piece* const piece = image.piece(index);
    const Run next{.first = index,
                   .count = 1,
                   .in_pieces = piece != nullptr,
                   .at = piece != nullptr ? uint64_t{piece->slot} : index};
    if (!all.empty() && all.back().in_pieces == next.in_pieces &&
        all.back().at + all.back().count == next.at) {
      ++all.back().count;
    } else {
      all.push_back(next);
    }
  }
  return all;
}

namespace {

ImageRecord record_of(const Image& image) {
  return {.state = image.state,
          .block = image.block.place(),
          .piece_block = image.piece_block.place(),
          .pieces = image.pieces};
}

}  // namespace

ChunkState state_of(const Versions& versions) {
  ChunkState state{.committed = versions.committed.state,
                   .chain_version = versions.chain_version,
                   .pending = {}};
  if (versions.pending) {
    state.pending =
        PendingState{.image = versions.pending->image.state, .writer = versions.pending->writer};
  }
  return state;
}

Record record_of(const Versions& versions) {
  Record record{.committed = record_of(versions.committed),
                .chain_version = versions.chain_version,
                .removed_ns = versions.removed_ns,
                .pending = {}};
  if (versions.pending) {
    record.pending = Record::Pending{.image = record_of(versions.pending->image),
                                     .writer = versions.pending->writer};
  }
  return record;
}

std::string row_of(const Versions& versions) {
  return versions.absent() ? std::string() : encode(record_of(versions));
}

}  // namespace ff::chunk

// chunk_version.cc: locations of checksum units, and conversion to metadata rows.
#include "storage/chunk/chunk_version.h"

#include <algorithm>

namespace ff::chunk {

const Overlay* ChunkVersion::find_overlay(uint64_t unit) const {
  const auto found = std::ranges::lower_bound(overlays, unit, {}, &Overlay::unit);
  return found == overlays.end() || found->unit != unit ? nullptr : &*found;
}

const LoggedUnit* ChunkVersion::find_logged(uint64_t unit) const {
  const auto found = std::ranges::lower_bound(logged, unit, {}, &LoggedUnit::unit);
  return found == logged.end() || found->unit != unit ? nullptr : &*found;
}

uint32_t ChunkVersion::unit_crc(uint64_t unit, const Crcs& crcs) const {
  if (const LoggedUnit* const data = find_logged(unit)) return data->crc;
  const Overlay* const replaced = find_overlay(unit);
  return replaced != nullptr ? replaced->crc : crcs[unit];
}

uint64_t ChunkVersion::unit_length(uint64_t index) const {
  return std::min(unit_bytes(), state.length - index * unit_bytes());
}

bool ChunkVersion::suspect() const {
  return (block && block->suspect) || (overlay_block && overlay_block->suspect);
}

void ChunkVersion::set_suspect(bool suspect) const {
  if (block) block->suspect = suspect;
  if (overlay_block) overlay_block->suspect = suspect;
}

std::vector<Extent> extents(const ChunkVersion& version, uint64_t first, uint64_t end) {
  std::vector<Extent> all;
  for (uint64_t index = first; index < end; ++index) {
    Extent next{.first = index, .count = 1, .at = index};
    if (const LoggedUnit* const data = version.find_logged(index)) {
      next.place = UnitPlace::log;
      next.at = data->lsn;
    } else if (const Overlay* const overlay = version.find_overlay(index)) {
      next.place = UnitPlace::overlay;
      next.at = overlay->slot;
    }
    const uint64_t stride = next.place == UnitPlace::log ? version.unit_bytes() : 1;
    if (!all.empty() && all.back().place == next.place &&
        all.back().at + all.back().count * stride == next.at) {
      ++all.back().count;
    } else {
      all.push_back(next);
    }
  }
  return all;
}

namespace {

VersionRecord record_of(const ChunkVersion& version) {
  return {.state = version.state,
          .block = version.block.location(),
          .overlay_block = version.overlay_block.location(),
          .overlays = version.overlays,
          .logged = version.logged};
}

}  // namespace

ChunkState state_of(const ChunkVersions& versions) {
  ChunkState state{.committed = versions.committed.state,
                   .chain_version = versions.chain_version,
                   .pending = {}};
  if (versions.pending) {
    state.pending = PendingState{.state = versions.pending->version.state,
                                 .request_id = versions.pending->request_id};
  }
  return state;
}

ChunkRecord record_of(const ChunkVersions& versions) {
  ChunkRecord record{.committed = record_of(versions.committed),
                     .chain_version = versions.chain_version,
                     .removed_ns = versions.removed_ns,
                     .pending = {}};
  if (versions.pending) {
    record.pending = ChunkRecord::Pending{.version = record_of(versions.pending->version),
                                          .request_id = versions.pending->request_id};
  }
  return record;
}

std::string row_of(const ChunkVersions& versions) {
  if (versions.absent()) return {};
  ChunkRecord record = record_of(versions);
  record.committed.logged.clear();
  if (record.pending) record.pending->version.logged.clear();
  return encode(record);
}

std::string undo_row_of(const ChunkVersions& versions) {
  return versions.absent() ? std::string() : encode(record_of(versions));
}

}  // namespace ff::chunk

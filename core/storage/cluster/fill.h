// How full the disks are, as the primary heard it last: kept in the KV store for the metadata
// servers beside it, which place new files by it.
#pragma once

#include <cstdint>
#include <map>

#include "storage/cluster/manager.h"

namespace ff::cluster {

// From here on operators are told; and nothing new is placed there while there is another place.
constexpr uint32_t kNearlyFullPercent = 90;
constexpr uint32_t kFullPercent = 98;

// Of the disk's bytes, rounded down.
constexpr uint32_t used_percent(uint64_t used, uint64_t capacity) {
  if (capacity == 0) return 0;
  return used >= capacity ? 100 : static_cast<uint32_t>(used / ((capacity + 99) / 100));
}

// Percent used of disks that have been heard of.
using Fill = std::map<Place, uint32_t>;
Fill fill_of(const Manager& manager);
// Of a chain: its fullest disk's, since all have what any has; 0: nothing is known.
uint32_t percent_of(const Fill& fill, const Chain& chain);

}  // namespace ff::cluster

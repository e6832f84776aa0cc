// How full the disks are, as last reported to the primary. The primary saves it in the KV store,
// where the metadata servers read it to place new files.
#pragma once

#include <cstdint>
#include <map>

#include "storage/cluster/manager.h"

namespace ff::cluster {

// Thresholds: from kNearfullPercent on `ff admin status` warns; at kFullPercent new files avoid the
// disk as long as other disks have space (Ceph: nearfull, full).
constexpr uint32_t kNearfullPercent = 90;
constexpr uint32_t kFullPercent = 98;

// Percentage of the capacity, rounded down.
constexpr uint32_t used_percent(uint64_t used, uint64_t capacity) {
  if (capacity == 0) return 0;
  return used >= capacity ? 100 : static_cast<uint32_t>(used / ((capacity + 99) / 100));
}

// Percent used by disk, of disks with a report.
using DiskUtilization = std::map<DiskLocation, uint32_t>;
DiskUtilization disk_utilization(const Manager& manager);

}  // namespace ff::cluster

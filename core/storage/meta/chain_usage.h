// Places new files on chains that take writes and have free space, as far as the usage of disks is
// known. The seed of a layout determines the chains of a file, so placement chooses the seed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::meta {

// Of a disk, or the worst one of some chains and their disks. A chain without a serving target is
// unavailable: writes to it wait.
enum class SpaceClass : uint8_t { unavailable, full, nearly_full, free };

struct ChainUsage {
  using DiskIndex = uint32_t;
  struct Chain {
    std::vector<DiskIndex> disks = {};
    SpaceClass space = SpaceClass::unavailable;
  };
  // The newest version of a chain table.
  struct Table {
    std::vector<Chain> chains = {};
    SpaceClass best = SpaceClass::unavailable;  // of its chains
  };
  std::vector<uint32_t> used = {};  // percent of each disk
  std::map<cluster::TableId, Table> tables = {};
};
// Disks without a report count as empty.
ChainUsage chain_usage_of(const cluster::Routing& routing,
                          const cluster::DiskUtilization& utilization);
// Whether a disk of the tables is nearly full, or full.
bool any_nearly_full(const ChainUsage& usage);

// Draws some seeds from a sequence that starts at the seed of `layout`, and returns one of them at
// random: the less a file with that seed loads disks in proportion to their free space, the more
// likely. So a stripe is spread evenly over disks, and prefers those with free space. Leaves out
// unavailable chains, then those with a full disk, then those with a nearly full one, as long as
// the table has others; where needed, halves the stripe for that.
Layout with_free_chains(Layout layout, const ChainUsage& usage);

}  // namespace ff::meta

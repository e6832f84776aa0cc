// Places new files on chains with free space, as far as the usage of disks is known. The seed of a
// layout determines the chains of a file, so placement chooses the seed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/routing.h"
#include "storage/meta/inode.h"

namespace ff::meta {

struct ChainUsage {
  std::map<cluster::TableId, std::vector<cluster::ChainId>> tables =
      {};                                          // chains of the newest version of each table
  std::map<cluster::ChainId, uint32_t> used = {};  // used percent of the fullest disk
};
ChainUsage chain_usage_of(const cluster::Routing& routing, const cluster::DiskUtilization& fill);

// Replaces the seed by the first one (of a sequence that starts at the seed of `layout`) whose
// chains are the emptiest: first no full chain, then no nearly full one, then by quarters of free
// space. Halves the stripe if every seed draws a full chain.
Layout with_free_chains(Layout layout, const ChainUsage& usage);

}  // namespace ff::meta

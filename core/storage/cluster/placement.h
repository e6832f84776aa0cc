// Placement of the targets of new chains, such that the read load of a failed node spreads evenly
// over all others (Fire-Flyer paper, section VI-B; a balanced incomplete block design). The measure
// for a pair of nodes is the number of chains they share; the ideal is
//
//   ceil(targets per node x (replicas - 1) / (nodes - 1))
//
// A greedy assignment is improved by swapping targets between chains as long as the sum of the
// squares of these numbers decreases. Deterministic for a seed; existing chains do not move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/result.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

struct FreeDisk {
  DiskId id = 0;
  size_t slots = 0;  // number of targets that still fit
};
struct FreeNode {
  NodeId id = 0;
  std::string domain =
      {};  // failure domain: no two targets of a chain share one; empty: the node itself
  std::vector<FreeDisk> disks = {};
};

struct PlacementRequest {
  std::vector<FreeNode> nodes = {};
  std::vector<std::vector<NodeId>> existing = {};  // existing chains
  size_t replicas = 2;
  size_t chains_max = kChainsMax;
  uint64_t seed = 1;
};

struct PlacementPlan {
  std::vector<std::vector<DiskLocation>> chains = {};  // the first target of each chain is its head
  size_t shared_max = 0;  // maximum over all pairs of nodes, existing chains included
  size_t shared_ideal = 0;
  size_t unused = 0;  // unused slots
};

// Errc::usage: too few nodes or domains with free slots.
Result<PlacementPlan> plan_placement(const PlacementRequest& request);

// All nodes of `routing` that are not drained, with `targets_per_disk` slots less the targets on
// each disk.
PlacementRequest placement_request(const Routing& routing, size_t targets_per_disk,
                                   size_t replicas);

}  // namespace ff::cluster

// Placement: which nodes the targets of new chains lie on, so that when a node fails its read load
// spreads evenly over all others (paper VI-B; a balanced incomplete block design). For every pair
// of nodes that is the number of chains they share; ideal would be
//
//   ceil(targets per node x (replicas - 1) / (nodes - 1))
//
// Chains are dealt out greedily, then repaired by swapping targets between chains as long as that
// makes the squares of those numbers sum to less. From a seed; existing chains stay as they are.
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
  size_t slots = 0;  // targets it may still take
};
struct FreeNode {
  NodeId id = 0;
  std::string domain = {};  // no two targets of a chain lie in one; empty: the node's own
  std::vector<FreeDisk> disks = {};
};

struct PlacementRequest {
  std::vector<FreeNode> nodes = {};
  std::vector<std::vector<NodeId>> existing = {};  // chains, which count but do not move
  size_t replicas = 2;
  size_t chains_max = kChainsMax;
  uint64_t seed = 1;
};

struct Plan {
  std::vector<std::vector<Place>> chains = {};  // the first target of each is its head
  size_t shared_max = 0;                        // chains of any pair of nodes, existing included
  size_t shared_ideal = 0;
  size_t unused = 0;  // slots
};

// Errc::usage: too few nodes, or domains, with room.
Result<Plan> place(const PlacementRequest& request);

// All nodes of `routing` but those that are drained, with `targets_per_disk` slots less what lies
// on each disk already.
PlacementRequest placement_request(const Routing& routing, size_t targets_per_disk,
                                   size_t replicas);

}  // namespace ff::cluster

// How many chains are fully replicated, only partly, or cannot be used: for operators and metrics.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "storage/cluster/routing.h"

namespace ff::cluster {

// Number of chains of a cluster in each condition.
struct ChainHealth {
  size_t chains = 0;
  size_t healthy = 0;   // every target serves
  size_t degraded = 0;  // some targets serve
  size_t lost = 0;      // no target serves
  // Lost chains, by the node that served them last.
  std::map<NodeId, std::vector<ChainId>> lost_by_node = {};
};
ChainHealth health_of(const Routing& routing);

}  // namespace ff::cluster

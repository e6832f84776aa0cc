// chain_health.cc: counts chains by the states of their targets.
#include "storage/cluster/chain_health.h"

#include <algorithm>

namespace ff::cluster {

ChainHealth health_of(const Routing& routing) {
  ChainHealth health;
  for (const auto& [id, chain] : routing.chains) {
    const auto serving = static_cast<size_t>(
        std::ranges::count(chain.targets, TargetState::serving, &Target::state));
    for (const Target& target : chain.targets) {
      if (target.state == TargetState::lastsrv) health.lost_by_node[target.node].push_back(id);
    }
    health.chains++;
    (serving == chain.targets.size() ? health.healthy
     : serving > 0                   ? health.degraded
                                     : health.lost)++;
  }
  return health;
}

}  // namespace ff::cluster

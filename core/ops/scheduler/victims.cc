// victims.cc: all sets of a few candidates, a greedy choice among many.
#include "ops/scheduler/victims.h"

#include <algorithm>
#include <bit>

#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

// The lowest level up to which the candidates free enough nodes.
PriorityLevel level_needed(std::span<const PreemptionCandidate> candidates, uint32_t wanted) {
  for (PriorityLevel level = 0; level < kPriorityLevels; level++) {
    uint32_t freed_nodes = 0;
    for (const PreemptionCandidate& one : candidates)
      freed_nodes += one.level <= level ? one.freed_nodes : 0;
    if (freed_nodes >= wanted) return level;
  }
  FF_CHECK(!"candidates with enough nodes");
  return 0;
}

Victims taken(std::span<const PreemptionCandidate> candidates, uint32_t mask) {
  Victims victims;
  for (size_t i = 0; i < candidates.size(); i++) {
    if ((mask >> i & 1) == 0) continue;
    victims.tasks.push_back(candidates[i].task);
    victims.cost.add(candidates[i]);
  }
  return victims;
}

// Enumerates all sets in Gray code order: each differs from the one before by one candidate.
Victims best_of_all(std::span<const PreemptionCandidate> candidates, uint32_t wanted) {
  uint32_t best = 0;
  PreemptionCost cost, best_cost;  // without the level, which all sufficient sets share
  uint32_t freed_nodes = 0;
  for (uint32_t step = 1, mask = 0; step < 1u << candidates.size(); step++) {
    const auto at = static_cast<size_t>(std::countr_zero(step));
    mask ^= 1u << at;
    const PreemptionCandidate& one = candidates[at];
    const int sign = (mask >> at & 1) != 0 ? 1 : -1;
    cost.lost_ns += sign * one.lost_ns;
    cost.ran_ns += sign * one.ran_ns;
    cost.gangs += static_cast<uint32_t>(sign);
    cost.nodes += static_cast<uint32_t>(sign) * one.nodes;
    freed_nodes += static_cast<uint32_t>(sign) * one.freed_nodes;
    if (freed_nodes < wanted || (best != 0 && !(cost < best_cost))) continue;
    best = mask;
    best_cost = cost;
  }
  Victims victims = taken(candidates, best);
  victims.is_exact = true;
  victims.lower_bound_ns = victims.cost.lost_ns;
  return victims;
}

Victims good_one(std::span<const PreemptionCandidate> candidates, uint32_t wanted) {
  Victims victims;
  std::vector<const PreemptionCandidate*> chosen;
  uint32_t freed_nodes = 0;
  for (const PreemptionCandidate& one : candidates) {
    const uint32_t some = std::min(one.freed_nodes, wanted - freed_nodes);
    victims.lower_bound_ns += one.lost_ns / one.nodes * some;
    chosen.push_back(&one);
    freed_nodes += one.freed_nodes;
    if (freed_nodes >= wanted) break;
  }
  // Drops candidates that are not needed, the costliest first.
  std::ranges::stable_sort(chosen, [](const PreemptionCandidate* a, const PreemptionCandidate* b) {
    return std::tuple(a->level, a->lost_ns) > std::tuple(b->level, b->lost_ns);
  });
  for (const PreemptionCandidate* one : chosen) {
    if (freed_nodes - one->freed_nodes >= wanted) {
      freed_nodes -= one->freed_nodes;
      continue;
    }
    victims.tasks.push_back(one->task);
    victims.cost.add(*one);
  }
  // A single candidate may cost less than several.
  for (const PreemptionCandidate& one : candidates) {
    PreemptionCost alone;
    alone.add(one);
    if (one.freed_nodes < wanted || !(alone < victims.cost)) continue;
    victims.tasks = {one.task};
    victims.cost = alone;
  }
  return victims;
}

}  // namespace

void PreemptionCost::add(const PreemptionCandidate& one) {
  level = std::max(level, one.level);
  lost_ns += one.lost_ns;
  gangs++;
  nodes += one.nodes;
  ran_ns += one.ran_ns;
}

Victims choose_victims(std::span<const PreemptionCandidate> candidates, uint32_t wanted) {
  const PriorityLevel level = level_needed(candidates, wanted);
  std::vector<PreemptionCandidate> eligible;
  for (const PreemptionCandidate& one : candidates) {
    if (one.level <= level && one.freed_nodes > 0) eligible.push_back(one);
  }
  if (eligible.size() <= kExactMax) return best_of_all(eligible, wanted);
  return good_one(eligible, wanted);
}

}  // namespace ff::scheduler

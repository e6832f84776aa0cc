// Chooses the tasks to preempt so that enough nodes become free, by the rule of decide.h.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/scheduler/cluster_snapshot.h"

namespace ff::scheduler {

constexpr size_t kExactMax = 16;

struct PreemptionCandidate {
  uint32_t task = 0;
  PriorityLevel level = 0;
  uint32_t freed_nodes = 0;  // eligible nodes that its preemption frees
  uint32_t nodes = 0;        // that it holds
  int64_t lost_ns = 0;       // node-nanoseconds since its last save
  int64_t ran_ns = 0;
};

// The cost of a set of preemptions; compared field by field, less is better.
struct PreemptionCost {
  PriorityLevel level = 0;  // the highest
  int64_t lost_ns = 0;
  uint32_t gangs = 0;
  uint32_t nodes = 0;
  int64_t ran_ns = 0;
  auto operator<=>(const PreemptionCost&) const = default;
  void add(const PreemptionCandidate& one);
};

struct Victims {
  std::vector<uint32_t> tasks = {};
  PreemptionCost cost = {};
  bool is_exact = false;
  int64_t lower_bound_ns = 0;  // every choice loses at least this
};

// All candidates together free enough nodes. Returns the best choice of at most kExactMax
// candidates; of more a greedy one, for which the candidates must be sorted by loss per node.
Victims choose_victims(std::span<const PreemptionCandidate> candidates, uint32_t wanted);

}  // namespace ff::scheduler

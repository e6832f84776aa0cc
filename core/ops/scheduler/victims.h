// Whom to interrupt, so that enough nodes become free: the rule of decide.h.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/scheduler/picture.h"

namespace ff::scheduler {

constexpr size_t kExactMax = 16;

struct Candidate {
  uint32_t task = 0;
  Level level = 0;
  uint32_t gain = 0;    // nodes that it would free where they are wanted
  uint32_t nodes = 0;   // that it holds
  int64_t lost_ns = 0;  // node-nanoseconds since its last save
  int64_t ran_ns = 0;
};

// What interrupting costs; less is better.
struct Toll {
  Level level = 0;  // the highest
  int64_t lost_ns = 0;
  uint32_t gangs = 0;
  uint32_t nodes = 0;
  int64_t ran_ns = 0;
  auto operator<=>(const Toll&) const = default;
  void add(const Candidate& one);
};

struct Victims {
  std::vector<uint32_t> tasks;
  Toll toll;
  bool is_exact = false;
  int64_t bound_ns = 0;  // no choice loses less
};

// Nodes of all candidates are enough. The best choice of at most kExactMax; of more a good one, for
// which they must be in the order of what they lose for each node.
Victims choose_victims(std::span<const Candidate> candidates, uint32_t wanted);

}  // namespace ff::scheduler

// victims.cc: all sets of a few candidates, a greedy choice among many.
#include "ops/scheduler/victims.h"

#include <algorithm>
#include <bit>

#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

// The lowest level up to which there are enough.
Level level_needed(std::span<const Candidate> candidates, uint32_t wanted) {
  for (Level level = 0; level < kLevels; level++) {
    uint32_t gain = 0;
    for (const Candidate& one : candidates) gain += one.level <= level ? one.gain : 0;
    if (gain >= wanted) return level;
  }
  FF_CHECK(!"candidates with enough nodes");
  return 0;
}

Victims taken(std::span<const Candidate> candidates, uint32_t mask) {
  Victims victims;
  for (size_t i = 0; i < candidates.size(); i++) {
    if ((mask >> i & 1) == 0) continue;
    victims.tasks.push_back(candidates[i].task);
    victims.toll.add(candidates[i]);
  }
  return victims;
}

// Each set differs from the one before by one candidate (Gray's code).
Victims best_of_all(std::span<const Candidate> candidates, uint32_t wanted) {
  uint32_t best = 0;
  Toll toll, best_toll;  // without its level, which all sets with enough share
  uint32_t gain = 0;
  for (uint32_t step = 1, mask = 0; step < 1u << candidates.size(); step++) {
    const auto at = static_cast<size_t>(std::countr_zero(step));
    mask ^= 1u << at;
    const Candidate& one = candidates[at];
    const int sign = (mask >> at & 1) != 0 ? 1 : -1;
    toll.lost_ns += sign * one.lost_ns;
    toll.ran_ns += sign * one.ran_ns;
    toll.gangs += static_cast<uint32_t>(sign);
    toll.nodes += static_cast<uint32_t>(sign) * one.nodes;
    gain += static_cast<uint32_t>(sign) * one.gain;
    if (gain < wanted || (best != 0 && !(toll < best_toll))) continue;
    best = mask;
    best_toll = toll;
  }
  Victims victims = taken(candidates, best);
  victims.is_exact = true;
  victims.bound_ns = victims.toll.lost_ns;
  return victims;
}

Victims good_one(std::span<const Candidate> candidates, uint32_t wanted) {
  Victims victims;
  std::vector<const Candidate*> chosen;
  uint32_t gain = 0;
  for (const Candidate& one : candidates) {
    const uint32_t some = std::min(one.gain, wanted - gain);
    victims.bound_ns += one.lost_ns / one.nodes * some;
    chosen.push_back(&one);
    gain += one.gain;
    if (gain >= wanted) break;
  }
  // Those without whom there are enough, the costliest first.
  std::ranges::stable_sort(chosen, [](const Candidate* a, const Candidate* b) {
    return std::tuple(a->level, a->lost_ns) > std::tuple(b->level, b->lost_ns);
  });
  for (const Candidate* one : chosen) {
    if (gain - one->gain >= wanted) {
      gain -= one->gain;
      continue;
    }
    victims.tasks.push_back(one->task);
    victims.toll.add(*one);
  }
  // One alone may cost less than several.
  for (const Candidate& one : candidates) {
    Toll alone;
    alone.add(one);
    if (one.gain < wanted || !(alone < victims.toll)) continue;
    victims.tasks = {one.task};
    victims.toll = alone;
  }
  return victims;
}

}  // namespace

void Toll::add(const Candidate& one) {
  level = std::max(level, one.level);
  lost_ns += one.lost_ns;
  gangs++;
  nodes += one.nodes;
  ran_ns += one.ran_ns;
}

Victims choose_victims(std::span<const Candidate> candidates, uint32_t wanted) {
  const Level level = level_needed(candidates, wanted);
  std::vector<Candidate> eligible;
  for (const Candidate& one : candidates) {
    if (one.level <= level && one.gain > 0) eligible.push_back(one);
  }
  if (eligible.size() <= kExactMax) return best_of_all(eligible, wanted);
  return good_one(eligible, wanted);
}

}  // namespace ff::scheduler

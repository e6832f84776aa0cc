// cluster_snapshot.cc: string ids, priority levels, quotas.
#include "ops/scheduler/cluster_snapshot.h"

#include <algorithm>

namespace ff::scheduler {

uint32_t StringInterner::id(std::string_view text) {
  if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
  const auto number = static_cast<uint32_t>(texts_.size());
  texts_.emplace_back(text);
  numbers_.emplace(texts_.back(), number);
  return number;
}

std::optional<PriorityLevel> priority_level(uint32_t priority) {
  const auto found = std::ranges::find(kPriorities, priority);
  if (found == kPriorities.end()) return std::nullopt;
  return static_cast<PriorityLevel>(found - kPriorities.begin());
}

void Quotas::set(uint32_t user, uint32_t partition, PriorityLevel level, uint32_t nodes) {
  limits_[{user, partition, level}] = nodes;
}

std::optional<uint32_t> Quotas::limit(uint32_t user, uint32_t partition,
                                      PriorityLevel level) const {
  const auto found = limits_.find({user, partition, level});
  if (found == limits_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ff::scheduler

// Random small clusters, with tasks and nodes in every state, and a brute-force implementation of
// the rules of decide.h: slow, and short enough to be trusted.
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ops/scheduler/decide.h"
#include "ops/scheduler/victims.h"
#include "platform/base/rng.h"

namespace ff::scheduler {

constexpr int64_t kNow = 1'000'000 * kSecond;

inline ClusterSnapshot small_cluster(Rng& rng) {
  ClusterSnapshot snapshot;
  const uint32_t zones = 1 + rng.below(2), partitions = 1 + (rng.below(4) == 0 ? 1 : 0);
  const auto nodes = static_cast<uint32_t>(3 + rng.below(8));
  for (uint32_t i = 0; i < nodes; i++) {
    SnapshotNode node{.partition = static_cast<uint32_t>(rng.below(partitions)),
                      .zone = static_cast<uint32_t>(rng.below(zones))};
    node.leaf = node.zone * 3 + static_cast<uint32_t>(rng.below(3));
    if (rng.below(3) == 0) node.labels = {7};
    node.usable = rng.below(12) != 0;
    snapshot.nodes.push_back(node);
  }
  const auto any_gang = [&] {
    Gang gang{.order = snapshot.tasks.size(), .user = static_cast<uint32_t>(rng.below(3))};
    gang.request.partition = static_cast<uint32_t>(rng.below(partitions));
    gang.request.nodes = 1 + static_cast<uint32_t>(rng.below(rng.below(2) == 0 ? 3 : nodes));
    gang.level = static_cast<PriorityLevel>(rng.below(3));
    if (rng.below(3) == 0) gang.limit_ns = static_cast<int64_t>(1 + rng.below(50)) * 100 * kSecond;
    if (rng.below(4) == 0) gang.min_run_ns = static_cast<int64_t>(rng.below(20)) * 100 * kSecond;
    return gang;
  };
  bool spans = false;
  for (uint32_t i = 0; i < 6; i++) {
    Gang gang = any_gang();
    std::vector<uint32_t> free;
    for (uint32_t node = 0; node < nodes; node++) {
      const SnapshotNode& facts = snapshot.nodes[node];
      if (facts.partition == gang.request.partition && facts.task == kNoIndex) free.push_back(node);
    }
    if (free.size() < gang.request.nodes) continue;
    const uint32_t zone = snapshot.nodes[free[rng.below(free.size())]].zone;
    const bool may_span = !spans && rng.below(3) == 0;
    if (!may_span) std::erase_if(free, [&](uint32_t n) { return snapshot.nodes[n].zone != zone; });
    if (free.size() < gang.request.nodes) continue;
    free.resize(gang.request.nodes);
    gang.nodes = free;
    for (const uint32_t node : free) {
      spans = spans || snapshot.nodes[node].zone != snapshot.nodes[free[0]].zone;
      snapshot.nodes[node].task = static_cast<uint32_t>(snapshot.tasks.size());
    }
    gang.charged_level = *gang.level;
    gang.phase = rng.below(5) == 0 ? GangPhase::stopping : GangPhase::running;
    gang.started_ns = kNow - static_cast<int64_t>(rng.below(30)) * 100 * kSecond;
    gang.saved_ns =
        gang.started_ns +
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(kNow - gang.started_ns) + 1));
    snapshot.tasks.push_back(gang);
  }
  for (uint64_t i = 1 + rng.below(5); i > 0; i--) {
    Gang gang = any_gang();
    if (rng.below(5) == 0) gang.request.labels = {7};
    if (rng.below(5) == 0) gang.request.zone = static_cast<uint32_t>(rng.below(zones));
    if (rng.below(6) == 0) gang.level = std::nullopt;
    if (rng.below(12) == 0) gang.ready_ns = kNow + kSecond;
    snapshot.tasks.push_back(gang);
  }
  for (uint64_t i = rng.below(5); i > 0; i--) {
    snapshot.quotas.set(
        static_cast<uint32_t>(rng.below(3)), static_cast<uint32_t>(rng.below(partitions)),
        static_cast<PriorityLevel>(rng.below(3)), static_cast<uint32_t>(rng.below(6)));
  }
  return snapshot;
}

inline bool serves(const ClusterSnapshot& snapshot, uint32_t node, const ResourceRequest& request) {
  const SnapshotNode& facts = snapshot.nodes[node];
  return facts.usable && facts.partition == request.partition &&
         (request.zone == kAnyZone || facts.zone == request.zone) &&
         std::ranges::includes(facts.labels, request.labels);
}

inline bool spans_zones(const ClusterSnapshot& snapshot, const std::vector<uint32_t>& nodes) {
  std::set<uint32_t> zones;
  for (const uint32_t node : nodes) zones.insert(snapshot.nodes[node].zone);
  return zones.size() > 1;
}

inline bool is_preemptible(const Gang& gang, PriorityLevel to) {
  return gang.phase == GangPhase::running && gang.charged_level < to &&
         kNow - gang.started_ns >= gang.min_run_ns;
}

// The expected result for the first task.
struct Expected {
  bool starts = false, waits_for_stopping = false;
  std::optional<PreemptionCost> cost = {};  // of the tasks that are preempted for it
};

inline Expected expected_of(const ClusterSnapshot& snapshot, const Gang& gang,
                            PriorityLevel level) {
  std::vector<std::vector<uint32_t>> scopes;  // nodes of each zone; or of all
  std::set<uint32_t> zones;
  for (const SnapshotNode& node : snapshot.nodes) zones.insert(node.zone);
  for (const uint32_t zone : zones) {
    auto& scope = scopes.emplace_back();
    for (uint32_t node = 0; node < snapshot.nodes.size(); node++) {
      if (snapshot.nodes[node].zone == zone && serves(snapshot, node, gang.request)) {
        scope.push_back(node);
      }
    }
  }
  // Only a gang that is wider than each zone spans zones, and one at a time.
  const bool is_wide = std::ranges::none_of(
      scopes, [&](const auto& scope) { return scope.size() >= gang.request.nodes; });
  uint32_t spanning = kNoIndex;
  for (uint32_t i = 0; is_wide && i < snapshot.tasks.size(); i++) {
    if (spans_zones(snapshot, snapshot.tasks[i].nodes)) spanning = i;
  }
  if (is_wide) {
    for (size_t i = 1; i < scopes.size(); i++) {
      scopes[0].insert(scopes[0].end(), scopes[i].begin(), scopes[i].end());
    }
    scopes.resize(1);
  }
  const bool must_stop =
      spanning != kNoIndex && snapshot.tasks[spanning].phase == GangPhase::running;
  if (must_stop && !is_preemptible(snapshot.tasks[spanning], level)) return {};
  const auto count = [&](const std::vector<uint32_t>& scope, auto fits) {
    uint32_t total = 0;
    for (const uint32_t node : scope) {
      const uint32_t task = snapshot.nodes[node].task;
      total += fits(task == kNoIndex ? nullptr : &snapshot.tasks[task]) ? 1 : 0;
    }
    return total;
  };
  const auto free = [](const Gang* one) { return one == nullptr; };
  const auto soon = [](const Gang* one) { return !one || one->phase == GangPhase::stopping; };
  Expected expected;
  for (const auto& scope : scopes) {
    if (spanning == kNoIndex && count(scope, free) >= gang.request.nodes) expected.starts = true;
    if (!must_stop && count(scope, soon) >= gang.request.nodes) expected.waits_for_stopping = true;
  }
  if (expected.starts || expected.waits_for_stopping) return expected;
  std::vector<uint32_t> candidates;
  for (uint32_t i = 0; i < snapshot.tasks.size(); i++) {
    if (is_preemptible(snapshot.tasks[i], level)) candidates.push_back(i);
  }
  const auto candidate = [&](uint32_t index) {
    const Gang& one = snapshot.tasks[index];
    const auto nodes = static_cast<uint32_t>(one.nodes.size());
    return PreemptionCandidate{.task = index,
                               .level = one.charged_level,
                               .nodes = nodes,
                               .lost_ns = nodes * (kNow - one.saved_ns),
                               .ran_ns = kNow - one.started_ns};
  };
  struct Choice {
    PreemptionCost cost;
    std::set<uint32_t> tasks;
  };
  // The cheapest set of tasks to stop in any scope, besides those that stop in any case.
  const auto best_choice = [&](const std::set<uint32_t>& stopping) {
    std::optional<Choice> best;
    for (const auto& scope : scopes) {
      for (uint32_t mask = 0; mask < 1u << candidates.size(); mask++) {
        Choice choice;
        for (size_t at = 0; at < candidates.size(); at++) {
          if ((mask >> at & 1) == 0) continue;
          choice.tasks.insert(candidates[at]);
          choice.cost.add(candidate(candidates[at]));
        }
        uint32_t there = count(scope, soon);
        for (const uint32_t node : scope) {
          const uint32_t task = snapshot.nodes[node].task;
          there += choice.tasks.contains(task) || stopping.contains(task) ? 1 : 0;
        }
        if (there < gang.request.nodes) continue;
        if (!best || choice.cost < best->cost) best = choice;
      }
    }
    return best;
  };
  auto best = best_choice({});
  if (best && must_stop && !best->tasks.contains(spanning)) {
    best = best_choice({spanning});
    best->cost.add(candidate(spanning));
  }
  if (best) expected.cost = best->cost;
  return expected;
}

}  // namespace ff::scheduler

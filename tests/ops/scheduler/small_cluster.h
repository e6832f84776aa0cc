// Random small clusters, with tasks and nodes in every state, and a brute-force implementation of
// the rules of decide.h: slow, and short enough to be trusted.
#pragma once

#include <algorithm>
#include <map>
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
  const uint32_t zones = 1 + rng.below(3), partitions = 1 + (rng.below(4) == 0 ? 1 : 0);
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

// Where a gang may run: in a zone; or in all, if no zone has enough nodes in service.
struct Scopes {
  std::vector<std::vector<uint32_t>> nodes;
  bool spans = false;
};

inline Scopes scopes_of(const ClusterSnapshot& snapshot, const ResourceRequest& request) {
  std::map<uint32_t, std::vector<uint32_t>> zones;
  std::vector<uint32_t> all;
  for (uint32_t node = 0; node < snapshot.nodes.size(); node++) {
    if (!serves(snapshot, node, request)) continue;
    zones[snapshot.nodes[node].zone].push_back(node);
    all.push_back(node);
  }
  Scopes scopes;
  for (const auto& [zone, nodes] : zones) {
    if (nodes.size() >= request.nodes) scopes.nodes.push_back(nodes);
  }
  scopes.spans = scopes.nodes.empty();
  if (scopes.spans) scopes.nodes.push_back(all);
  return scopes;
}

inline PreemptionCandidate candidate_of(const ClusterSnapshot& snapshot, uint32_t index) {
  const Gang& one = snapshot.tasks[index];
  const auto nodes = static_cast<uint32_t>(one.nodes.size());
  return {.task = index,
          .level = one.charged_level,
          .nodes = nodes,
          .lost_ns = nodes * (kNow - one.saved_ns),
          .ran_ns = kNow - one.started_ns};
}

// The nodes of a scope that are free, or whose task is in `stopping`.
inline uint32_t available(const ClusterSnapshot& snapshot, const std::vector<uint32_t>& scope,
                          const std::set<uint32_t>& stopping) {
  return static_cast<uint32_t>(std::ranges::count_if(scope, [&](uint32_t node) {
    const uint32_t task = snapshot.nodes[node].task;
    return task == kNoIndex || stopping.contains(task);
  }));
}

struct StopSet {
  PreemptionCost cost = {};
  std::set<uint32_t> tasks = {};
};

// The cheapest set of tasks to stop for `count` nodes, besides those that stop in any case.
inline std::optional<StopSet> cheapest_stop_set(const ClusterSnapshot& snapshot,
                                                const Scopes& scopes, uint32_t count,
                                                const std::vector<uint32_t>& candidates,
                                                const std::set<uint32_t>& stopping) {
  std::optional<StopSet> best;
  for (uint32_t mask = 0; mask < 1u << candidates.size(); mask++) {
    StopSet set;
    std::set<uint32_t> all = stopping;
    for (size_t at = 0; at < candidates.size(); at++) {
      if ((mask >> at & 1) == 0) continue;
      set.tasks.insert(candidates[at]);
      all.insert(candidates[at]);
      set.cost.add(candidate_of(snapshot, candidates[at]));
    }
    const bool is_enough = std::ranges::any_of(
        scopes.nodes, [&](const auto& scope) { return available(snapshot, scope, all) >= count; });
    if (is_enough && (!best || set.cost < best->cost)) best = set;
  }
  return best;
}

// The expected result for the first task.
struct Expected {
  bool starts = false, waits_for_stopping = false;
  std::optional<PreemptionCost> cost = {};  // of the tasks that are preempted for it
};

inline Expected expected_of(const ClusterSnapshot& snapshot, const Gang& gang,
                            PriorityLevel level) {
  const Scopes scopes = scopes_of(snapshot, gang.request);
  // Only one task at a time spans zones.
  uint32_t spanning = kNoIndex;
  std::set<uint32_t> stopping;
  std::vector<uint32_t> candidates;
  for (uint32_t i = 0; i < snapshot.tasks.size(); i++) {
    const Gang& one = snapshot.tasks[i];
    if (scopes.spans && spans_zones(snapshot, one.nodes)) spanning = i;
    if (one.phase == GangPhase::stopping) stopping.insert(i);
    if (is_preemptible(one, level)) candidates.push_back(i);
  }
  const bool must_stop =
      spanning != kNoIndex && snapshot.tasks[spanning].phase == GangPhase::running;
  if (must_stop && !is_preemptible(snapshot.tasks[spanning], level)) return {};
  Expected expected;
  for (const auto& scope : scopes.nodes) {
    const auto has = [&](const std::set<uint32_t>& ended) {
      return available(snapshot, scope, ended) >= gang.request.nodes;
    };
    if (spanning == kNoIndex && has({})) expected.starts = true;
    if (!must_stop && has(stopping)) expected.waits_for_stopping = true;
  }
  if (expected.starts || expected.waits_for_stopping) return expected;
  const auto cheapest = [&] {
    return cheapest_stop_set(snapshot, scopes, gang.request.nodes, candidates, stopping);
  };
  auto best = cheapest();
  if (best && must_stop && !best->tasks.contains(spanning)) {
    stopping.insert(spanning);
    best = cheapest();
    best->cost.add(candidate_of(snapshot, spanning));
  }
  if (best) expected.cost = best->cost;
  return expected;
}

}  // namespace ff::scheduler

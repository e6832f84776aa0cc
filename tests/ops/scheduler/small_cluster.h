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
  std::vector<std::vector<uint32_t>> scopes;  // nodes of each zone, then all
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
  const bool taken = std::ranges::any_of(
      snapshot.tasks, [&](const Gang& one) { return spans_zones(snapshot, one.nodes); });
  const size_t single = scopes.size();
  if (!taken) {
    auto& all = scopes.emplace_back();
    for (size_t i = 0; i < single; i++) all.insert(all.end(), scopes[i].begin(), scopes[i].end());
  }
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
  for (size_t pass = 0; pass < 2; pass++) {
    const size_t begin = pass == 0 ? 0 : single, end = pass == 0 ? single : scopes.size();
    for (size_t i = begin; i < end; i++) {
      if (count(scopes[i], free) >= gang.request.nodes) expected.starts = true;
    }
    if (expected.starts) return expected;
    for (size_t i = begin; i < end; i++) {
      if (count(scopes[i], soon) >= gang.request.nodes) expected.waits_for_stopping = true;
    }
    if (expected.waits_for_stopping) return expected;
  }
  std::vector<uint32_t> candidates;
  for (uint32_t i = 0; i < snapshot.tasks.size(); i++) {
    if (is_preemptible(snapshot.tasks[i], level)) candidates.push_back(i);
  }
  for (size_t i = 0; i < scopes.size(); i++) {
    if (i == single && expected.cost) break;  // across zones only where no zone has enough
    for (uint32_t mask = 1; mask < 1u << candidates.size(); mask++) {
      PreemptionCost cost;
      std::set<uint32_t> stop;
      for (size_t at = 0; at < candidates.size(); at++) {
        if ((mask >> at & 1) == 0) continue;
        const Gang& one = snapshot.tasks[candidates[at]];
        stop.insert(candidates[at]);
        cost.level = std::max(cost.level, one.charged_level);
        cost.lost_ns += static_cast<int64_t>(one.nodes.size()) * (kNow - one.saved_ns);
        cost.gangs++;
        cost.nodes += static_cast<uint32_t>(one.nodes.size());
        cost.ran_ns += kNow - one.started_ns;
      }
      uint32_t there = count(scopes[i], soon);
      for (const uint32_t node : scopes[i])
        there += stop.contains(snapshot.nodes[node].task) ? 1 : 0;
      if (there < gang.request.nodes) continue;
      if (!expected.cost || cost < *expected.cost) expected.cost = cost;
    }
  }
  return expected;
}

}  // namespace ff::scheduler

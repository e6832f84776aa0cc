// Small clusters out of a seed, in every state that tasks and nodes can be in, and the rules of
// decide.h told again by trying everything: slow, and short enough to be believed.
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

inline Picture small_cluster(Rng& rng) {
  Picture picture;
  const uint32_t zones = 1 + rng.below(2), groups = 1 + (rng.below(4) == 0 ? 1 : 0);
  const auto nodes = static_cast<uint32_t>(3 + rng.below(8));
  for (uint32_t i = 0; i < nodes; i++) {
    Node node{.group = static_cast<uint32_t>(rng.below(groups)),
              .zone = static_cast<uint32_t>(rng.below(zones))};
    node.leaf = node.zone * 3 + static_cast<uint32_t>(rng.below(3));
    if (rng.below(3) == 0) node.marks = {7};
    node.usable = rng.below(12) != 0;
    picture.nodes.push_back(node);
  }
  const auto any_gang = [&] {
    Gang gang{.order = picture.tasks.size(), .user = static_cast<uint32_t>(rng.below(3))};
    gang.demand.group = static_cast<uint32_t>(rng.below(groups));
    gang.demand.nodes = 1 + static_cast<uint32_t>(rng.below(rng.below(2) == 0 ? 3 : nodes));
    gang.level = static_cast<Level>(rng.below(3));
    if (rng.below(3) == 0) gang.limit_ns = static_cast<int64_t>(1 + rng.below(50)) * 100 * kSecond;
    if (rng.below(4) == 0) gang.min_run_ns = static_cast<int64_t>(rng.below(20)) * 100 * kSecond;
    return gang;
  };
  bool spans = false;
  for (uint32_t i = 0; i < 6; i++) {
    Gang gang = any_gang();
    std::vector<uint32_t> free;
    for (uint32_t node = 0; node < nodes; node++) {
      const Node& facts = picture.nodes[node];
      if (facts.group == gang.demand.group && facts.task == kNobody) free.push_back(node);
    }
    if (free.size() < gang.demand.nodes) continue;
    const uint32_t zone = picture.nodes[free[rng.below(free.size())]].zone;
    const bool may_span = !spans && rng.below(3) == 0;
    if (!may_span) std::erase_if(free, [&](uint32_t n) { return picture.nodes[n].zone != zone; });
    if (free.size() < gang.demand.nodes) continue;
    free.resize(gang.demand.nodes);
    gang.nodes = free;
    for (const uint32_t node : free) {
      spans = spans || picture.nodes[node].zone != picture.nodes[free[0]].zone;
      picture.nodes[node].task = static_cast<uint32_t>(picture.tasks.size());
    }
    gang.charged = *gang.level;
    gang.phase = rng.below(5) == 0 ? Phase::stopping : Phase::running;
    gang.started_ns = kNow - static_cast<int64_t>(rng.below(30)) * 100 * kSecond;
    gang.saved_ns =
        gang.started_ns +
        static_cast<int64_t>(rng.below(static_cast<uint64_t>(kNow - gang.started_ns) + 1));
    picture.tasks.push_back(gang);
  }
  for (uint64_t i = 1 + rng.below(5); i > 0; i--) {
    Gang gang = any_gang();
    if (rng.below(5) == 0) gang.demand.marks = {7};
    if (rng.below(5) == 0) gang.demand.zone = static_cast<uint32_t>(rng.below(zones));
    if (rng.below(6) == 0) gang.level = std::nullopt;
    if (rng.below(12) == 0) gang.ready_ns = kNow + kSecond;
    picture.tasks.push_back(gang);
  }
  for (uint64_t i = rng.below(5); i > 0; i--) {
    picture.quotas.set(static_cast<uint32_t>(rng.below(3)),
                       static_cast<uint32_t>(rng.below(groups)), static_cast<Level>(rng.below(3)),
                       static_cast<uint32_t>(rng.below(6)));
  }
  return picture;
}

inline bool serves(const Picture& picture, uint32_t node, const Demand& demand) {
  const Node& facts = picture.nodes[node];
  return facts.usable && facts.group == demand.group &&
         (demand.zone == kAnywhere || facts.zone == demand.zone) &&
         std::ranges::includes(facts.marks, demand.marks);
}

inline bool spans_zones(const Picture& picture, const std::vector<uint32_t>& nodes) {
  std::set<uint32_t> zones;
  for (const uint32_t node : nodes) zones.insert(picture.nodes[node].zone);
  return zones.size() > 1;
}

inline bool gives_way(const Gang& gang, Level to) {
  return gang.phase == Phase::running && gang.charged < to &&
         kNow - gang.started_ns >= gang.min_run_ns;
}

// What the task that comes first must get.
struct Expected {
  bool starts = false, waits_for_stopping = false;
  std::optional<Toll> toll = {};  // of the tasks that are interrupted for it
};

inline Expected expected_of(const Picture& picture, const Gang& gang, Level level) {
  std::vector<std::vector<uint32_t>> scopes;  // nodes of each zone, then all
  std::set<uint32_t> zones;
  for (const Node& node : picture.nodes) zones.insert(node.zone);
  for (const uint32_t zone : zones) {
    auto& scope = scopes.emplace_back();
    for (uint32_t node = 0; node < picture.nodes.size(); node++) {
      if (picture.nodes[node].zone == zone && serves(picture, node, gang.demand)) {
        scope.push_back(node);
      }
    }
  }
  const bool taken = std::ranges::any_of(
      picture.tasks, [&](const Gang& one) { return spans_zones(picture, one.nodes); });
  const size_t single = scopes.size();
  if (!taken) {
    auto& all = scopes.emplace_back();
    for (size_t i = 0; i < single; i++) all.insert(all.end(), scopes[i].begin(), scopes[i].end());
  }
  const auto count = [&](const std::vector<uint32_t>& scope, auto fits) {
    uint32_t total = 0;
    for (const uint32_t node : scope) {
      const uint32_t task = picture.nodes[node].task;
      total += fits(task == kNobody ? nullptr : &picture.tasks[task]) ? 1 : 0;
    }
    return total;
  };
  const auto free = [](const Gang* one) { return one == nullptr; };
  const auto soon = [](const Gang* one) { return !one || one->phase == Phase::stopping; };
  Expected expected;
  for (size_t pass = 0; pass < 2; pass++) {
    const size_t begin = pass == 0 ? 0 : single, end = pass == 0 ? single : scopes.size();
    for (size_t i = begin; i < end; i++) {
      if (count(scopes[i], free) >= gang.demand.nodes) expected.starts = true;
    }
    if (expected.starts) return expected;
    for (size_t i = begin; i < end; i++) {
      if (count(scopes[i], soon) >= gang.demand.nodes) expected.waits_for_stopping = true;
    }
    if (expected.waits_for_stopping) return expected;
  }
  std::vector<uint32_t> candidates;
  for (uint32_t i = 0; i < picture.tasks.size(); i++) {
    if (gives_way(picture.tasks[i], level)) candidates.push_back(i);
  }
  for (size_t i = 0; i < scopes.size(); i++) {
    if (i == single && expected.toll) break;  // across zones only where no zone has enough
    for (uint32_t mask = 1; mask < 1u << candidates.size(); mask++) {
      Toll toll;
      std::set<uint32_t> stop;
      for (size_t at = 0; at < candidates.size(); at++) {
        if ((mask >> at & 1) == 0) continue;
        const Gang& one = picture.tasks[candidates[at]];
        stop.insert(candidates[at]);
        toll.level = std::max(toll.level, one.charged);
        toll.lost_ns += static_cast<int64_t>(one.nodes.size()) * (kNow - one.saved_ns);
        toll.gangs++;
        toll.nodes += static_cast<uint32_t>(one.nodes.size());
        toll.ran_ns += kNow - one.started_ns;
      }
      uint32_t there = count(scopes[i], soon);
      for (const uint32_t node : scopes[i])
        there += stop.contains(picture.nodes[node].task) ? 1 : 0;
      if (there < gang.demand.nodes) continue;
      if (!expected.toll || toll < *expected.toll) expected.toll = toll;
    }
  }
  return expected;
}

}  // namespace ff::scheduler

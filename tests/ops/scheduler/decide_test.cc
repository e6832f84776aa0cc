// Scheduling passes: each rule of decide.h, and thousands of small clusters against exhaustive
// search.
#include "ops/scheduler/decide.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "ops/scheduler/small_cluster.h"

namespace ff::scheduler {
namespace {

constexpr uint64_t kDecideSeeds = 200'000;

ClusterSnapshot cluster(uint32_t nodes, uint32_t zones = 1, uint32_t leaf_nodes = 4) {
  ClusterSnapshot snapshot;
  const uint32_t zone_nodes = nodes / zones;
  for (uint32_t i = 0; i < nodes; i++) {
    snapshot.nodes.push_back({.zone = i / zone_nodes, .leaf = i / leaf_nodes});
  }
  return snapshot;
}

uint32_t add(ClusterSnapshot& snapshot, Gang gang) {
  gang.order = snapshot.tasks.size();
  snapshot.tasks.push_back(gang);
  return static_cast<uint32_t>(snapshot.tasks.size() - 1);
}

// A gang that has been running on these nodes.
uint32_t add_running(ClusterSnapshot& snapshot, Gang gang, std::vector<uint32_t> nodes,
                     int64_t ran_ns) {
  gang.phase = GangPhase::running;
  gang.charged_level = *gang.level;
  gang.request.nodes = static_cast<uint32_t>(nodes.size());
  gang.started_ns = gang.saved_ns = kNow - ran_ns;
  gang.nodes = nodes;
  const uint32_t task = add(snapshot, gang);
  for (const uint32_t node : nodes) snapshot.nodes[node].task = task;
  return task;
}

const TaskWait* wait_of(const SchedulingDecision& decision, uint32_t task) {
  const auto found = std::ranges::find(decision.waits, task, &TaskWait::task);
  return found == decision.waits.end() ? nullptr : &*found;
}

const TaskStart* start_of(const SchedulingDecision& decision, uint32_t task) {
  const auto found = std::ranges::find(decision.starts, task, &TaskStart::task);
  return found == decision.starts.end() ? nullptr : &*found;
}

std::optional<WaitReason> wait_reason_of(const SchedulingDecision& decision, uint32_t task) {
  const TaskWait* const wait = wait_of(decision, task);
  return wait == nullptr ? std::nullopt : std::optional(wait->reason);
}

std::vector<uint32_t> nodes_of(const SchedulingDecision& decision, uint32_t task) {
  const TaskStart* const start = start_of(decision, task);
  return start == nullptr ? std::vector<uint32_t>() : start->nodes;
}

TEST(Decide, HigherLevelsThenFirstComeFirst) {
  ClusterSnapshot snapshot = cluster(2);
  const uint32_t early = add(snapshot, {.request = {.nodes = 1}, .level = 1});
  const uint32_t later = add(snapshot, {.request = {.nodes = 1}, .level = 1});
  const uint32_t higher = add(snapshot, {.request = {.nodes = 1}, .level = 4});
  const SchedulingDecision decision = decide(snapshot, kNow);
  ASSERT_EQ(decision.starts.size(), 2u);
  EXPECT_EQ(decision.starts[0].task, higher);
  EXPECT_EQ(decision.starts[1].task, early);
  EXPECT_EQ(wait_reason_of(decision, later), WaitReason::resources);
}

TEST(Decide, AWholeGangOrNone) {
  ClusterSnapshot snapshot = cluster(4);
  const uint32_t large = add(snapshot, {.request = {.nodes = 3}});
  add_running(snapshot, {.level = 5}, {0, 1}, kSecond);
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_TRUE(decision.starts.empty());
  EXPECT_EQ(wait_of(decision, large)->missing, 1u);
}

TEST(Decide, TheBestFitOfLeaves) {
  ClusterSnapshot snapshot = cluster(12);
  add_running(snapshot, {}, {4, 5}, kSecond);  // the second leaf has two left
  const uint32_t small = add(snapshot, {.request = {.nodes = 2}});
  const uint32_t large = add(snapshot, {.request = {.nodes = 6}});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(nodes_of(decision, small), (std::vector<uint32_t>{6, 7}));
  EXPECT_EQ(nodes_of(decision, large).size(), 6u);
}

TEST(Decide, OneTaskSpansZonesAndOnePairTalksAcross) {
  ClusterSnapshot snapshot = cluster(8, 2);
  const uint32_t one = add(snapshot, {.request = {.nodes = 6}});
  const uint32_t other = add(snapshot, {.request = {.nodes = 5}, .level = 2});
  SchedulingDecision decision = decide(snapshot, kNow);
  const TaskStart* start = start_of(decision, one);
  ASSERT_NE(start, nullptr);
  size_t across = 0;
  for (size_t i = 0; i + 1 < start->nodes.size(); i++) {
    across += snapshot.nodes[start->nodes[i]].zone != snapshot.nodes[start->nodes[i + 1]].zone;
  }
  EXPECT_EQ(across, 1u);
  EXPECT_EQ(wait_reason_of(decision, other), WaitReason::zone_span);
  EXPECT_EQ(wait_of(decision, other)->other, one);
}

TEST(Decide, ATaskThatFitsAZoneWaitsForOne) {
  ClusterSnapshot snapshot = cluster(8, 2);
  add_running(snapshot, {.level = 3}, {0, 1, 4, 5}, kSecond);  // of an older scheduler
  const uint32_t narrow = add(snapshot, {.request = {.nodes = 3}});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, narrow), WaitReason::resources);
  EXPECT_EQ(wait_of(decision, narrow)->missing, 0u);
}

// 60 of the 64 nodes are free, but the task that spans zones is in the way.
TEST(Decide, ATaskThatSpansZonesIsPreemptedForAHigherOne) {
  ClusterSnapshot snapshot = cluster(64, 2);
  const uint32_t low = add_running(snapshot, {.level = 1}, {30, 31, 32, 33}, kSecond);
  const uint32_t urgent = add(snapshot, {.request = {.nodes = 40}, .level = 5});
  SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_TRUE(decision.starts.empty());
  ASSERT_EQ(decision.preemptions.size(), 1u);
  EXPECT_EQ(decision.preemptions[0].task, low);
  EXPECT_EQ(wait_reason_of(decision, urgent), WaitReason::releasing);
  snapshot.tasks[low].phase = GangPhase::stopping;
  decision = decide(snapshot, kNow);
  EXPECT_TRUE(decision.starts.empty());
  EXPECT_EQ(wait_reason_of(decision, urgent), WaitReason::releasing);
  for (const uint32_t node : snapshot.tasks[low].nodes) snapshot.nodes[node].task = kNoIndex;
  snapshot.tasks.erase(snapshot.tasks.begin() + low);
  EXPECT_EQ(decide(snapshot, kNow).starts.size(), 1u);
}

TEST(Decide, TheFirstThatNeedsTwoZonesHasAReservation) {
  ClusterSnapshot snapshot = cluster(8, 2);
  const uint32_t runs = add_running(snapshot, {.level = 3}, {0, 1, 2, 3, 4}, kSecond);
  const uint32_t wide = add(snapshot, {.request = {.nodes = 6}, .level = 3});
  const uint32_t later_wide = add(snapshot, {.request = {.nodes = 5}, .level = 3});
  const uint32_t narrow = add(snapshot, {.request = {.nodes = 1}, .level = 3});
  const uint32_t lower = add(snapshot, {.request = {.nodes = 1}, .level = 2});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, wide), WaitReason::zone_span);
  EXPECT_EQ(wait_of(decision, wide)->other, runs);
  EXPECT_EQ(wait_reason_of(decision, later_wide), WaitReason::zone_span);
  EXPECT_EQ(wait_reason_of(decision, narrow), WaitReason::priority);
  EXPECT_EQ(wait_of(decision, narrow)->other, wide);
  EXPECT_NE(start_of(decision, lower), nullptr);  // it can be preempted at once
}

// In another partition only the zones are taken: its nodes are not kept free in vain.
TEST(Decide, WhatWaitsForTheZonesOnlyReservesNoNodes) {
  ClusterSnapshot snapshot = cluster(16, 2);
  for (const uint32_t node : {4, 5, 6, 7, 12, 13, 14, 15}) snapshot.nodes[node].partition = 1;
  const uint32_t runs =
      add_running(snapshot, {.level = 3, .limit_ns = 100 * kSecond}, {0, 1, 8, 9, 10}, kSecond);
  const ResourceRequest six{.nodes = 6, .partition = 1};
  const uint32_t wide = add(snapshot, {.request = six, .level = 3});
  const uint32_t narrow = add(snapshot, {.request = {.nodes = 4, .partition = 1}, .level = 3});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, wide), WaitReason::zone_span);
  EXPECT_EQ(wait_of(decision, wide)->other, runs);
  EXPECT_EQ(wait_of(decision, wide)->expected_ns, kNow + 99 * kSecond + snapshot.stop_ns);
  EXPECT_NE(start_of(decision, narrow), nullptr);
}

TEST(Decide, TheLowestLevelIsInterruptedAndThenWhoLosesLeast) {
  ClusterSnapshot snapshot = cluster(4);
  add_running(snapshot, {.level = 2}, {0}, 10 * kSecond);
  const uint32_t lost_much = add_running(snapshot, {.level = 1}, {1}, 500 * kSecond);
  const uint32_t lost_little = add_running(snapshot, {.level = 1}, {2}, 5000 * kSecond);
  snapshot.tasks[lost_little].saved_ns = kNow - 100 * kSecond;
  add_running(snapshot, {.level = 3}, {3}, kSecond);
  const uint32_t wants = add(snapshot, {.request = {.nodes = 1}, .level = 3});
  SchedulingDecision decision = decide(snapshot, kNow);
  ASSERT_EQ(decision.preemptions.size(), 1u);
  EXPECT_EQ(decision.preemptions[0].task, lost_little);
  EXPECT_EQ(decision.preemptions[0].for_task, wants);
  EXPECT_EQ(wait_reason_of(decision, wants), WaitReason::releasing);
  EXPECT_EQ(decision.lost_ns, 100 * kSecond);
  // Once it is stopping, no other task is preempted.
  snapshot.tasks[lost_little].phase = GangPhase::stopping;
  decision = decide(snapshot, kNow);
  EXPECT_TRUE(decision.preemptions.empty());
  EXPECT_EQ(wait_reason_of(decision, wants), WaitReason::releasing);
  EXPECT_NE(lost_much, lost_little);
}

TEST(Decide, NobodyIsInterruptedBeforeItsTime) {
  ClusterSnapshot snapshot = cluster(1);
  add_running(snapshot, {.level = 0, .min_run_ns = 600 * kSecond}, {0}, 100 * kSecond);
  const uint32_t wants = add(snapshot, {.level = 5});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_TRUE(decision.preemptions.empty());
  EXPECT_EQ(wait_reason_of(decision, wants), WaitReason::resources);
  EXPECT_EQ(wait_of(decision, wants)->expected_ns, kNow + 500 * kSecond + snapshot.stop_ns);
}

// A gang that needs three of four nodes, two of them busy for another 1000 s.
struct Reservation {
  ClusterSnapshot snapshot = cluster(4);
  uint32_t first;
  Reservation() {
    add_running(snapshot, {.level = 3, .limit_ns = 2000 * kSecond}, {0, 1}, 1000 * kSecond);
    first = add(snapshot, {.request = {.nodes = 4}, .level = 3});
  }
};

TEST(Decide, BackfillOnlyWhatEndsBefore) {
  Reservation there;
  const uint32_t endless = add(there.snapshot, {.level = 3});
  const uint32_t too_long = add(there.snapshot, {.level = 3, .limit_ns = 1001 * kSecond});
  const uint32_t fits = add(there.snapshot, {.level = 3, .limit_ns = 900 * kSecond});
  const SchedulingDecision decision = decide(there.snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, there.first), WaitReason::resources);
  EXPECT_EQ(wait_of(decision, there.first)->expected_ns,
            kNow + 1000 * kSecond + there.snapshot.stop_ns);
  EXPECT_EQ(wait_reason_of(decision, endless), WaitReason::priority);
  EXPECT_EQ(wait_of(decision, endless)->other, there.first);
  EXPECT_EQ(wait_reason_of(decision, too_long), WaitReason::priority);
  EXPECT_NE(start_of(decision, fits), nullptr);
}

TEST(Decide, BackfillOfWhatCanBeInterruptedAtOnce) {
  Reservation there;
  const uint32_t holds = add(there.snapshot, {.level = 2, .min_run_ns = kSecond});
  const uint32_t yields = add(there.snapshot, {.level = 2});
  const SchedulingDecision decision = decide(there.snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, holds), WaitReason::priority);
  EXPECT_NE(start_of(decision, yields), nullptr);
}

TEST(Decide, NodesBesideTheReservationAreForAll) {
  Reservation there;
  there.snapshot.tasks[there.first].request.nodes = 3;
  const uint32_t one = add(there.snapshot, {.level = 3});
  const uint32_t another = add(there.snapshot, {.level = 3});
  const SchedulingDecision decision = decide(there.snapshot, kNow);
  EXPECT_NE(start_of(decision, one), nullptr);
  EXPECT_EQ(wait_reason_of(decision, another), WaitReason::priority);
}

TEST(Decide, QuotasOfAUser) {
  ClusterSnapshot snapshot = cluster(4);
  snapshot.quotas.set(1, 0, 3, 2);
  const uint32_t two = add(snapshot, {.user = 1, .request = {.nodes = 2}, .level = 3});
  const uint32_t over = add(snapshot, {.user = 1, .request = {.nodes = 1}, .level = 3});
  const uint32_t free = add(snapshot, {.user = 2, .request = {.nodes = 2}, .level = 2});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_NE(start_of(decision, two), nullptr);
  EXPECT_EQ(wait_reason_of(decision, over), WaitReason::quota);
  EXPECT_EQ(wait_of(decision, over)->missing, 1u);
  EXPECT_EQ(wait_of(decision, over)->quota, 2u);
  EXPECT_NE(start_of(decision, free), nullptr);
}

TEST(Decide, WithoutALevelTheHighestWithRoom) {
  ClusterSnapshot snapshot = cluster(8);
  snapshot.quotas.set(1, 0, 5, 1);
  snapshot.quotas.set(1, 0, 2, 4);
  const uint32_t high = add(snapshot, {.user = 1, .level = std::nullopt});
  const uint32_t low = add(snapshot, {.user = 1, .level = std::nullopt});
  const uint32_t usual = add(snapshot, {.user = 2, .level = std::nullopt});
  const uint32_t over = add(snapshot, {.user = 1, .request = {.nodes = 5}, .level = std::nullopt});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(start_of(decision, high)->level, 5);
  EXPECT_EQ(start_of(decision, low)->level, 2);
  EXPECT_EQ(start_of(decision, usual)->level, kDefaultLevel);
  EXPECT_EQ(wait_reason_of(decision, over), WaitReason::quota);
}

TEST(Decide, WhatCannotRunKeepsNobodyBack) {
  ClusterSnapshot snapshot = cluster(4);
  snapshot.nodes[3].usable = false;
  const uint32_t never = add(snapshot, {.request = {.nodes = 5}, .level = 5});
  const uint32_t out = add(snapshot, {.request = {.nodes = 4}, .level = 5});
  const uint32_t early = add(snapshot, {.request = {.nodes = 1}, .ready_ns = kNow + kSecond});
  const uint32_t runs = add(snapshot, {.request = {.nodes = 3}, .level = 0});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(wait_reason_of(decision, never), WaitReason::unsatisfiable);
  EXPECT_EQ(wait_of(decision, never)->missing, 1u);
  EXPECT_EQ(wait_reason_of(decision, out), WaitReason::nodes_unavailable);
  EXPECT_EQ(wait_reason_of(decision, early), WaitReason::begin_time);
  EXPECT_EQ(wait_of(decision, early)->expected_ns, kNow + kSecond);
  EXPECT_NE(start_of(decision, runs), nullptr);
}

TEST(Decide, GroupsAndMarks) {
  ClusterSnapshot snapshot = cluster(4);
  snapshot.nodes[1].partition = 1;
  snapshot.nodes[2].labels = {4, 9};
  const uint32_t other = add(snapshot, {.request = {.nodes = 1, .partition = 1}});
  const uint32_t marked = add(snapshot, {.request = {.nodes = 1, .labels = {9}}});
  const uint32_t none = add(snapshot, {.request = {.nodes = 1, .labels = {5}}});
  const SchedulingDecision decision = decide(snapshot, kNow);
  EXPECT_EQ(nodes_of(decision, other), std::vector<uint32_t>{1});
  EXPECT_EQ(nodes_of(decision, marked), std::vector<uint32_t>{2});
  EXPECT_EQ(wait_reason_of(decision, none), WaitReason::unsatisfiable);
}

// Invariants of every decision.
void check(const ClusterSnapshot& snapshot, const SchedulingDecision& decision) {
  std::set<uint32_t> given, outcome;
  std::map<std::tuple<uint32_t, uint32_t, PriorityLevel>, uint32_t> charged_level;
  uint32_t spanning = 0;
  for (const Gang& gang : snapshot.tasks) {
    if (gang.phase == GangPhase::waiting) continue;
    charged_level[{gang.user, gang.request.partition, gang.charged_level}] += gang.nodes.size();
    spanning += spans_zones(snapshot, gang.nodes) ? 1 : 0;
  }
  const uint32_t spanned = spanning;
  for (const TaskStart& start : decision.starts) {
    const Gang& gang = snapshot.tasks[start.task];
    EXPECT_TRUE(outcome.insert(start.task).second);
    EXPECT_EQ(gang.phase, GangPhase::waiting);
    EXPECT_EQ(start.nodes.size(), gang.request.nodes);
    for (const uint32_t node : start.nodes) {
      EXPECT_TRUE(given.insert(node).second);
      EXPECT_TRUE(serves(snapshot, node, gang.request));
      EXPECT_EQ(snapshot.nodes[node].task, kNoIndex);
    }
    uint32_t& nodes = charged_level[{gang.user, gang.request.partition, start.level}];
    nodes += gang.request.nodes;
    const auto limit = snapshot.quotas.limit(gang.user, gang.request.partition, start.level);
    if (limit) {
      EXPECT_LE(nodes, *limit);
    }
    spanning += spans_zones(snapshot, start.nodes) ? 1 : 0;
  }
  EXPECT_LE(spanning, std::max(1u, spanned));
  for (const TaskWait& wait : decision.waits) EXPECT_TRUE(outcome.insert(wait.task).second);
  std::set<uint32_t> stopped;
  for (const Preemption& one : decision.preemptions) {
    EXPECT_TRUE(stopped.insert(one.task).second);
    const TaskWait* const wait = wait_of(decision, one.for_task);
    ASSERT_NE(wait, nullptr);
    EXPECT_EQ(wait->reason, WaitReason::releasing);
    const Gang& wants = snapshot.tasks[one.for_task];
    EXPECT_TRUE(is_preemptible(snapshot.tasks[one.task], wants.level.value_or(kPriorityLevels)));
  }
  size_t waiting = 0;
  for (const Gang& gang : snapshot.tasks) waiting += gang.phase == GangPhase::waiting ? 1 : 0;
  EXPECT_EQ(outcome.size(), waiting);
}

// The first task of a partition gets its nodes by its expected time, whatever else was started.
void check_reservation(const ClusterSnapshot& snapshot, const SchedulingDecision& decision) {
  // A decision does not tell which of the released nodes are for which task.
  if (std::ranges::count(decision.waits, WaitReason::releasing, &TaskWait::reason) > 0) return;
  for (const TaskWait& wait : decision.waits) {
    if (wait.reason != WaitReason::resources || wait.expected_ns == kNever) continue;
    const Gang& first = snapshot.tasks[wait.task];
    if (!first.level) continue;  // its place depends on quotas
    const PriorityLevel level = *first.level;
    std::map<uint32_t, const TaskStart*> started;
    for (const TaskStart& start : decision.starts) {
      for (const uint32_t node : start.nodes) started[node] = &start;
    }
    std::map<uint32_t, uint32_t> zones;
    uint32_t all = 0;
    for (uint32_t node = 0; node < snapshot.nodes.size(); node++) {
      if (!serves(snapshot, node, first.request)) continue;
      const uint32_t holder = snapshot.nodes[node].task;
      const auto found = started.find(node);
      bool in_time = holder == kNoIndex && found == started.end();
      if (found != started.end()) {
        const Gang& gang = snapshot.tasks[found->second->task];
        const int64_t ends_ns = kNow + gang.limit_ns + snapshot.stop_ns;
        in_time = (gang.limit_ns > 0 && ends_ns <= wait.expected_ns) ||
                  (found->second->level < level && gang.min_run_ns == 0);
        // Of a higher level, so it got its nodes before.
        if (found->second->level > level) continue;
      } else if (holder != kNoIndex) {
        const Gang& gang = snapshot.tasks[holder];
        const int64_t free_ns = gang.phase == GangPhase::stopping ? kNow
                                : gang.charged_level < level
                                    ? std::max(kNow, gang.started_ns + gang.min_run_ns)
                                    : kNever;
        const int64_t ends_ns = gang.limit_ns > 0 ? gang.started_ns + gang.limit_ns : kNever;
        const int64_t soonest_ns = std::min(free_ns, ends_ns);
        in_time = soonest_ns != kNever &&
                  std::max(kNow, soonest_ns + snapshot.stop_ns) <= wait.expected_ns;
      }
      zones[snapshot.nodes[node].zone] += in_time ? 1 : 0;
      all += in_time ? 1 : 0;
    }
    uint32_t most = all;  // only one task may span zones; ignored here
    for (const auto& [zone, count] : zones) most = std::max(most, count);
    EXPECT_GE(most, first.request.nodes);
  }
}

TEST(Decide, SmallClustersAgainstTryingEverything) {
  size_t started = 0, interrupted = 0, reserved = 0;
  for (uint64_t seed = 1; seed <= kDecideSeeds; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SeededRng rng(seed);
    const ClusterSnapshot snapshot = small_cluster(rng);
    const SchedulingDecision decision = decide(snapshot, kNow);
    check(snapshot, decision);
    check_reservation(snapshot, decision);
    reserved += std::ranges::count(decision.waits, WaitReason::resources, &TaskWait::reason);
    // The first task that can get nodes at all.
    uint32_t first = kNoIndex;
    for (uint32_t i = 0; i < snapshot.tasks.size(); i++) {
      const Gang& gang = snapshot.tasks[i];
      if (gang.phase != GangPhase::waiting || !gang.level) continue;
      const TaskWait* const wait = wait_of(decision, i);
      if (wait &&
          (wait->reason == WaitReason::begin_time || wait->reason == WaitReason::unsatisfiable ||
           wait->reason == WaitReason::quota || wait->reason == WaitReason::nodes_unavailable)) {
        continue;
      }
      if (first == kNoIndex || *gang.level > *snapshot.tasks[first].level) first = i;
    }
    const bool has_auto = std::ranges::any_of(snapshot.tasks, [](const Gang& gang) {
      return gang.phase == GangPhase::waiting && !gang.level;
    });
    if (first == kNoIndex || has_auto) continue;  // its place depends on quotas
    const Gang& gang = snapshot.tasks[first];
    const Expected expected = expected_of(snapshot, gang, *gang.level);
    EXPECT_EQ(start_of(decision, first) != nullptr, expected.starts);
    PreemptionCost cost;
    for (const Preemption& one : decision.preemptions) {
      if (one.for_task != first) continue;
      const Gang& victim = snapshot.tasks[one.task];
      const auto nodes = static_cast<uint32_t>(victim.nodes.size());
      cost.add({.level = victim.charged_level,
                .nodes = nodes,
                .lost_ns = nodes * (kNow - victim.saved_ns),
                .ran_ns = kNow - victim.started_ns});
    }
    EXPECT_EQ(cost.gangs > 0, expected.cost.has_value());
    if (expected.cost) {
      EXPECT_TRUE(cost == *expected.cost);
    }
    started += expected.starts ? 1 : 0;
    interrupted += expected.cost ? 1 : 0;
    if (HasFailure()) return;
  }
  // The seeds cover the interesting cases.
  EXPECT_GT(started, kDecideSeeds / 20);
  EXPECT_GT(interrupted, kDecideSeeds / 20);
  EXPECT_GT(reserved, kDecideSeeds / 20);
}

TEST(Decide, FewLeavesAsTryingEverythingFinds) {
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SeededRng rng(seed);
    ClusterSnapshot snapshot;
    std::vector<uint32_t> sizes;
    for (uint32_t leaf = 0; leaf < 6; leaf++) {
      sizes.push_back(static_cast<uint32_t>(rng.below(5)));
      for (uint32_t i = 0; i < sizes.back(); i++) snapshot.nodes.push_back({.leaf = leaf});
    }
    if (snapshot.nodes.empty()) continue;
    const auto count = static_cast<uint32_t>(1 + rng.below(snapshot.nodes.size()));
    add(snapshot, {.request = {.nodes = count}});
    const SchedulingDecision decision = decide(snapshot, kNow);
    ASSERT_EQ(decision.starts.size(), 1u);
    std::set<uint32_t> leaves;
    for (const uint32_t node : decision.starts[0].nodes) leaves.insert(snapshot.nodes[node].leaf);
    size_t fewest = sizes.size();
    for (uint32_t mask = 0; mask < 1u << sizes.size(); mask++) {
      uint32_t there = 0;
      for (size_t i = 0; i < sizes.size(); i++) there += (mask >> i & 1) != 0 ? sizes[i] : 0;
      if (there >= count) fewest = std::min(fewest, static_cast<size_t>(std::popcount(mask)));
    }
    EXPECT_EQ(leaves.size(), fewest);
  }
}

}  // namespace
}  // namespace ff::scheduler

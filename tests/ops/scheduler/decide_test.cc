// The rules of decide.h: one by one, and over thousands of small clusters against trying
// everything.
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

Picture cluster(uint32_t nodes, uint32_t zones = 1, uint32_t leaf_nodes = 4) {
  Picture picture;
  const uint32_t zone_nodes = nodes / zones;
  for (uint32_t i = 0; i < nodes; i++) {
    picture.nodes.push_back({.zone = i / zone_nodes, .leaf = i / leaf_nodes});
  }
  return picture;
}

uint32_t add(Picture& picture, Gang gang) {
  gang.order = picture.tasks.size();
  picture.tasks.push_back(gang);
  return static_cast<uint32_t>(picture.tasks.size() - 1);
}

// One that runs on these nodes for so long.
uint32_t add_running(Picture& picture, Gang gang, std::vector<uint32_t> nodes, int64_t ran_ns) {
  gang.phase = Phase::running;
  gang.charged = *gang.level;
  gang.demand.nodes = static_cast<uint32_t>(nodes.size());
  gang.started_ns = gang.saved_ns = kNow - ran_ns;
  gang.nodes = nodes;
  const uint32_t task = add(picture, gang);
  for (const uint32_t node : nodes) picture.nodes[node].task = task;
  return task;
}

const Wait* wait_of(const Decision& decision, uint32_t task) {
  const auto found = std::ranges::find(decision.waits, task, &Wait::task);
  return found == decision.waits.end() ? nullptr : &*found;
}

const Start* start_of(const Decision& decision, uint32_t task) {
  const auto found = std::ranges::find(decision.starts, task, &Start::task);
  return found == decision.starts.end() ? nullptr : &*found;
}

std::optional<Why> why_of(const Decision& decision, uint32_t task) {
  const Wait* const wait = wait_of(decision, task);
  return wait == nullptr ? std::nullopt : std::optional(wait->why);
}

std::vector<uint32_t> nodes_of(const Decision& decision, uint32_t task) {
  const Start* const start = start_of(decision, task);
  return start == nullptr ? std::vector<uint32_t>() : start->nodes;
}

TEST(Decide, HigherLevelsThenFirstComeFirst) {
  Picture picture = cluster(2);
  const uint32_t early = add(picture, {.demand = {.nodes = 1}, .level = 1});
  const uint32_t later = add(picture, {.demand = {.nodes = 1}, .level = 1});
  const uint32_t higher = add(picture, {.demand = {.nodes = 1}, .level = 4});
  const Decision decision = decide(picture, kNow);
  ASSERT_EQ(decision.starts.size(), 2u);
  EXPECT_EQ(decision.starts[0].task, higher);
  EXPECT_EQ(decision.starts[1].task, early);
  EXPECT_EQ(why_of(decision, later), Why::first);
}

TEST(Decide, AWholeGangOrNone) {
  Picture picture = cluster(4);
  const uint32_t large = add(picture, {.demand = {.nodes = 3}});
  add_running(picture, {.level = 5}, {0, 1}, kSecond);
  const Decision decision = decide(picture, kNow);
  EXPECT_TRUE(decision.starts.empty());
  EXPECT_EQ(wait_of(decision, large)->missing, 1u);
}

TEST(Decide, TheBestFitOfLeaves) {
  Picture picture = cluster(12);
  add_running(picture, {}, {4, 5}, kSecond);  // the second leaf has two left
  const uint32_t small = add(picture, {.demand = {.nodes = 2}});
  const uint32_t large = add(picture, {.demand = {.nodes = 6}});
  const Decision decision = decide(picture, kNow);
  EXPECT_EQ(nodes_of(decision, small), (std::vector<uint32_t>{6, 7}));
  EXPECT_EQ(nodes_of(decision, large).size(), 6u);
}

TEST(Decide, OneTaskSpansZonesAndOnePairTalksAcross) {
  Picture picture = cluster(8, 2);
  const uint32_t one = add(picture, {.demand = {.nodes = 6}});
  const uint32_t other = add(picture, {.demand = {.nodes = 5}, .level = 2});
  Decision decision = decide(picture, kNow);
  const Start* start = start_of(decision, one);
  ASSERT_NE(start, nullptr);
  size_t across = 0;
  for (size_t i = 0; i + 1 < start->nodes.size(); i++) {
    across += picture.nodes[start->nodes[i]].zone != picture.nodes[start->nodes[i + 1]].zone;
  }
  EXPECT_EQ(across, 1u);
  EXPECT_EQ(why_of(decision, other), Why::zones);
  EXPECT_EQ(wait_of(decision, other)->other, one);
}

TEST(Decide, TheLowestLevelIsInterruptedAndThenWhoLosesLeast) {
  Picture picture = cluster(4);
  add_running(picture, {.level = 2}, {0}, 10 * kSecond);
  const uint32_t lost_much = add_running(picture, {.level = 1}, {1}, 500 * kSecond);
  const uint32_t lost_little = add_running(picture, {.level = 1}, {2}, 5000 * kSecond);
  picture.tasks[lost_little].saved_ns = kNow - 100 * kSecond;
  add_running(picture, {.level = 3}, {3}, kSecond);
  const uint32_t wants = add(picture, {.demand = {.nodes = 1}, .level = 3});
  Decision decision = decide(picture, kNow);
  ASSERT_EQ(decision.interrupts.size(), 1u);
  EXPECT_EQ(decision.interrupts[0].task, lost_little);
  EXPECT_EQ(decision.interrupts[0].for_task, wants);
  EXPECT_EQ(why_of(decision, wants), Why::stopping);
  EXPECT_EQ(decision.lost_ns, 100 * kSecond);
  // Once it stops, nobody else is asked to.
  picture.tasks[lost_little].phase = Phase::stopping;
  decision = decide(picture, kNow);
  EXPECT_TRUE(decision.interrupts.empty());
  EXPECT_EQ(why_of(decision, wants), Why::stopping);
  EXPECT_NE(lost_much, lost_little);
}

TEST(Decide, NobodyIsInterruptedBeforeItsTime) {
  Picture picture = cluster(1);
  add_running(picture, {.level = 0, .min_run_ns = 600 * kSecond}, {0}, 100 * kSecond);
  const uint32_t wants = add(picture, {.level = 5});
  const Decision decision = decide(picture, kNow);
  EXPECT_TRUE(decision.interrupts.empty());
  EXPECT_EQ(why_of(decision, wants), Why::first);
  EXPECT_EQ(wait_of(decision, wants)->expected_ns, kNow + 500 * kSecond + picture.stop_ns);
}

// One that needs three of four nodes, two of which are in use for another 1000 s.
struct Reservation {
  Picture picture = cluster(4);
  uint32_t first;
  Reservation() {
    add_running(picture, {.level = 3, .limit_ns = 2000 * kSecond}, {0, 1}, 1000 * kSecond);
    first = add(picture, {.demand = {.nodes = 4}, .level = 3});
  }
};

TEST(Decide, BackfillOnlyWhatEndsBefore) {
  Reservation there;
  const uint32_t endless = add(there.picture, {.level = 3});
  const uint32_t too_long = add(there.picture, {.level = 3, .limit_ns = 1001 * kSecond});
  const uint32_t fits = add(there.picture, {.level = 3, .limit_ns = 900 * kSecond});
  const Decision decision = decide(there.picture, kNow);
  EXPECT_EQ(why_of(decision, there.first), Why::first);
  EXPECT_EQ(wait_of(decision, there.first)->expected_ns,
            kNow + 1000 * kSecond + there.picture.stop_ns);
  EXPECT_EQ(why_of(decision, endless), Why::behind);
  EXPECT_EQ(wait_of(decision, endless)->other, there.first);
  EXPECT_EQ(why_of(decision, too_long), Why::behind);
  EXPECT_NE(start_of(decision, fits), nullptr);
}

TEST(Decide, BackfillOfWhatCanBeInterruptedAtOnce) {
  Reservation there;
  const uint32_t holds = add(there.picture, {.level = 2, .min_run_ns = kSecond});
  const uint32_t yields = add(there.picture, {.level = 2});
  const Decision decision = decide(there.picture, kNow);
  EXPECT_EQ(why_of(decision, holds), Why::behind);
  EXPECT_NE(start_of(decision, yields), nullptr);
}

TEST(Decide, NodesBesideTheReservationAreForAll) {
  Reservation there;
  there.picture.tasks[there.first].demand.nodes = 3;
  const uint32_t one = add(there.picture, {.level = 3});
  const uint32_t another = add(there.picture, {.level = 3});
  const Decision decision = decide(there.picture, kNow);
  EXPECT_NE(start_of(decision, one), nullptr);
  EXPECT_EQ(why_of(decision, another), Why::behind);
}

TEST(Decide, QuotasOfAUser) {
  Picture picture = cluster(4);
  picture.quotas.set(1, 0, 3, 2);
  const uint32_t two = add(picture, {.user = 1, .demand = {.nodes = 2}, .level = 3});
  const uint32_t over = add(picture, {.user = 1, .demand = {.nodes = 1}, .level = 3});
  const uint32_t free = add(picture, {.user = 2, .demand = {.nodes = 2}, .level = 2});
  const Decision decision = decide(picture, kNow);
  EXPECT_NE(start_of(decision, two), nullptr);
  EXPECT_EQ(why_of(decision, over), Why::no_quota);
  EXPECT_EQ(wait_of(decision, over)->missing, 1u);
  EXPECT_NE(start_of(decision, free), nullptr);
}

TEST(Decide, WithoutALevelTheHighestWithRoom) {
  Picture picture = cluster(8);
  picture.quotas.set(1, 0, 5, 1);
  picture.quotas.set(1, 0, 2, 4);
  const uint32_t high = add(picture, {.user = 1, .level = std::nullopt});
  const uint32_t low = add(picture, {.user = 1, .level = std::nullopt});
  const uint32_t usual = add(picture, {.user = 2, .level = std::nullopt});
  const uint32_t over = add(picture, {.user = 1, .demand = {.nodes = 5}, .level = std::nullopt});
  const Decision decision = decide(picture, kNow);
  EXPECT_EQ(start_of(decision, high)->level, 5);
  EXPECT_EQ(start_of(decision, low)->level, 2);
  EXPECT_EQ(start_of(decision, usual)->level, kUsualLevel);
  EXPECT_EQ(why_of(decision, over), Why::no_quota);
}

TEST(Decide, WhatCannotRunKeepsNobodyBack) {
  Picture picture = cluster(4);
  picture.nodes[3].usable = false;
  const uint32_t never = add(picture, {.demand = {.nodes = 5}, .level = 5});
  const uint32_t out = add(picture, {.demand = {.nodes = 4}, .level = 5});
  const uint32_t early = add(picture, {.demand = {.nodes = 1}, .ready_ns = kNow + kSecond});
  const uint32_t runs = add(picture, {.demand = {.nodes = 3}, .level = 0});
  const Decision decision = decide(picture, kNow);
  EXPECT_EQ(why_of(decision, never), Why::never);
  EXPECT_EQ(wait_of(decision, never)->missing, 1u);
  EXPECT_EQ(why_of(decision, out), Why::nodes_out);
  EXPECT_EQ(why_of(decision, early), Why::not_yet);
  EXPECT_EQ(wait_of(decision, early)->expected_ns, kNow + kSecond);
  EXPECT_NE(start_of(decision, runs), nullptr);
}

TEST(Decide, GroupsAndMarks) {
  Picture picture = cluster(4);
  picture.nodes[1].group = 1;
  picture.nodes[2].marks = {4, 9};
  const uint32_t other = add(picture, {.demand = {.nodes = 1, .group = 1}});
  const uint32_t marked = add(picture, {.demand = {.nodes = 1, .marks = {9}}});
  const uint32_t none = add(picture, {.demand = {.nodes = 1, .marks = {5}}});
  const Decision decision = decide(picture, kNow);
  EXPECT_EQ(nodes_of(decision, other), std::vector<uint32_t>{1});
  EXPECT_EQ(nodes_of(decision, marked), std::vector<uint32_t>{2});
  EXPECT_EQ(why_of(decision, none), Why::never);
}

// What must hold of every decision.
void check(const Picture& picture, const Decision& decision) {
  std::set<uint32_t> given, outcome;
  std::map<std::tuple<uint32_t, uint32_t, Level>, uint32_t> charged;
  uint32_t spanning = 0;
  for (const Gang& gang : picture.tasks) {
    if (gang.phase == Phase::waiting) continue;
    charged[{gang.user, gang.demand.group, gang.charged}] += gang.nodes.size();
    spanning += spans_zones(picture, gang.nodes) ? 1 : 0;
  }
  const uint32_t spanned = spanning;
  for (const Start& start : decision.starts) {
    const Gang& gang = picture.tasks[start.task];
    EXPECT_TRUE(outcome.insert(start.task).second);
    EXPECT_EQ(gang.phase, Phase::waiting);
    EXPECT_EQ(start.nodes.size(), gang.demand.nodes);
    for (const uint32_t node : start.nodes) {
      EXPECT_TRUE(given.insert(node).second);
      EXPECT_TRUE(serves(picture, node, gang.demand));
      EXPECT_EQ(picture.nodes[node].task, kNobody);
    }
    uint32_t& nodes = charged[{gang.user, gang.demand.group, start.level}];
    nodes += gang.demand.nodes;
    const auto limit = picture.quotas.limit(gang.user, gang.demand.group, start.level);
    if (limit) {
      EXPECT_LE(nodes, *limit);
    }
    spanning += spans_zones(picture, start.nodes) ? 1 : 0;
  }
  EXPECT_LE(spanning, std::max(1u, spanned));
  for (const Wait& wait : decision.waits) EXPECT_TRUE(outcome.insert(wait.task).second);
  std::set<uint32_t> stopped;
  for (const Interrupt& one : decision.interrupts) {
    EXPECT_TRUE(stopped.insert(one.task).second);
    const Wait* const wait = wait_of(decision, one.for_task);
    ASSERT_NE(wait, nullptr);
    EXPECT_EQ(wait->why, Why::stopping);
    const Gang& wants = picture.tasks[one.for_task];
    EXPECT_TRUE(gives_way(picture.tasks[one.task], wants.level.value_or(kLevels)));
  }
  size_t waiting = 0;
  for (const Gang& gang : picture.tasks) waiting += gang.phase == Phase::waiting ? 1 : 0;
  EXPECT_EQ(outcome.size(), waiting);
}

// The first of a group gets its nodes when it was told to, whatever else was started.
void check_reservation(const Picture& picture, const Decision& decision) {
  // Which of the nodes that are being freed are for whom a decision does not say.
  if (std::ranges::count(decision.waits, Why::stopping, &Wait::why) > 0) return;
  for (const Wait& wait : decision.waits) {
    if (wait.why != Why::first || wait.expected_ns == kNever) continue;
    const Gang& first = picture.tasks[wait.task];
    if (!first.level) continue;  // its place depends on quotas
    const Level level = *first.level;
    std::map<uint32_t, const Start*> started;
    for (const Start& start : decision.starts) {
      for (const uint32_t node : start.nodes) started[node] = &start;
    }
    std::map<uint32_t, uint32_t> zones;
    uint32_t all = 0;
    for (uint32_t node = 0; node < picture.nodes.size(); node++) {
      if (!serves(picture, node, first.demand)) continue;
      const uint32_t holder = picture.nodes[node].task;
      const auto found = started.find(node);
      bool in_time = holder == kNobody && found == started.end();
      if (found != started.end()) {
        const Gang& gang = picture.tasks[found->second->task];
        const int64_t ends_ns = kNow + gang.limit_ns + picture.stop_ns;
        in_time = (gang.limit_ns > 0 && ends_ns <= wait.expected_ns) ||
                  (found->second->level < level && gang.min_run_ns == 0);
        // Of a higher level, and so given its nodes before.
        if (found->second->level > level) continue;
      } else if (holder != kNobody) {
        const Gang& gang = picture.tasks[holder];
        const int64_t free_ns = gang.phase == Phase::stopping ? kNow
                                : gang.charged < level
                                    ? std::max(kNow, gang.started_ns + gang.min_run_ns)
                                    : kNever;
        const int64_t ends_ns = gang.limit_ns > 0 ? gang.started_ns + gang.limit_ns : kNever;
        const int64_t soonest_ns = std::min(free_ns, ends_ns);
        in_time = soonest_ns != kNever &&
                  std::max(kNow, soonest_ns + picture.stop_ns) <= wait.expected_ns;
      }
      zones[picture.nodes[node].zone] += in_time ? 1 : 0;
      all += in_time ? 1 : 0;
    }
    uint32_t most = all;  // across zones is for one task only, which this does not look at
    for (const auto& [zone, count] : zones) most = std::max(most, count);
    EXPECT_GE(most, first.demand.nodes);
  }
}

TEST(Decide, SmallClustersAgainstTryingEverything) {
  size_t started = 0, interrupted = 0, reserved = 0;
  for (uint64_t seed = 1; seed <= kDecideSeeds; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SeededRng rng(seed);
    const Picture picture = small_cluster(rng);
    const Decision decision = decide(picture, kNow);
    check(picture, decision);
    check_reservation(picture, decision);
    reserved += std::ranges::count(decision.waits, Why::first, &Wait::why);
    // Who comes first of those that can have nodes at all.
    uint32_t first = kNobody;
    for (uint32_t i = 0; i < picture.tasks.size(); i++) {
      const Gang& gang = picture.tasks[i];
      if (gang.phase != Phase::waiting || !gang.level) continue;
      const Wait* const wait = wait_of(decision, i);
      if (wait && (wait->why == Why::not_yet || wait->why == Why::never ||
                   wait->why == Why::no_quota || wait->why == Why::nodes_out)) {
        continue;
      }
      if (first == kNobody || *gang.level > *picture.tasks[first].level) first = i;
    }
    const bool has_auto = std::ranges::any_of(picture.tasks, [](const Gang& gang) {
      return gang.phase == Phase::waiting && !gang.level;
    });
    if (first == kNobody || has_auto) continue;  // whose place depends on quotas
    const Gang& gang = picture.tasks[first];
    const Expected expected = expected_of(picture, gang, *gang.level);
    EXPECT_EQ(start_of(decision, first) != nullptr, expected.starts);
    Toll toll;
    for (const Interrupt& one : decision.interrupts) {
      if (one.for_task != first) continue;
      const Gang& victim = picture.tasks[one.task];
      const auto nodes = static_cast<uint32_t>(victim.nodes.size());
      toll.add({.level = victim.charged,
                .nodes = nodes,
                .lost_ns = nodes * (kNow - victim.saved_ns),
                .ran_ns = kNow - victim.started_ns});
    }
    EXPECT_EQ(toll.gangs > 0, expected.toll.has_value());
    if (expected.toll) {
      EXPECT_TRUE(toll == *expected.toll);
    }
    started += expected.starts ? 1 : 0;
    interrupted += expected.toll ? 1 : 0;
    if (HasFailure()) return;
  }
  // The seeds are worth something.
  EXPECT_GT(started, kDecideSeeds / 20);
  EXPECT_GT(interrupted, kDecideSeeds / 20);
  EXPECT_GT(reserved, kDecideSeeds / 20);
}

TEST(Decide, FewLeavesAsTryingEverythingFinds) {
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    SeededRng rng(seed);
    Picture picture;
    std::vector<uint32_t> sizes;
    for (uint32_t leaf = 0; leaf < 6; leaf++) {
      sizes.push_back(static_cast<uint32_t>(rng.below(5)));
      for (uint32_t i = 0; i < sizes.back(); i++) picture.nodes.push_back({.leaf = leaf});
    }
    if (picture.nodes.empty()) continue;
    const auto count = static_cast<uint32_t>(1 + rng.below(picture.nodes.size()));
    add(picture, {.demand = {.nodes = count}});
    const Decision decision = decide(picture, kNow);
    ASSERT_EQ(decision.starts.size(), 1u);
    std::set<uint32_t> leaves;
    for (const uint32_t node : decision.starts[0].nodes) leaves.insert(picture.nodes[node].leaf);
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

// Placement: how evenly the load of a failed node spreads, and the rules of every plan.
// FF_PLACEMENT_ALL=1 checks all node counts from 6 to 100.
#include "storage/cluster/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

namespace ff::cluster {
namespace {

PlacementRequest request_of(size_t nodes, size_t disks, size_t targets_per_disk, size_t replicas) {
  PlacementRequest request{.replicas = replicas};
  for (NodeId id = 1; id <= nodes; id++) {
    FreeNode node{.id = id};
    for (DiskId disk = 1; disk <= disks; disk++) node.disks.push_back({disk, targets_per_disk});
    request.nodes.push_back(std::move(node));
  }
  return request;
}

// Recomputed independently of the plan.
size_t most_shared(const PlacementPlan& plan) {
  std::map<std::pair<NodeId, NodeId>, size_t> shared;
  size_t most = 0;
  for (const auto& chain : plan.chains) {
    for (const DiskLocation a : chain) {
      for (const DiskLocation b : chain) {
        if (a.node < b.node) most = std::max(most, ++shared[{a.node, b.node}]);
      }
    }
  }
  return most;
}

void expect_rules(const PlacementRequest& request, const PlacementPlan& plan) {
  std::map<DiskLocation, size_t> used;
  std::map<NodeId, std::string> domains;
  for (const FreeNode& node : request.nodes) {
    domains[node.id] = node.domain.empty() ? fmt::format("{}", node.id) : node.domain;
  }
  for (const auto& chain : plan.chains) {
    ASSERT_EQ(chain.size(), request.replicas);
    std::set<std::string> seen;
    for (const DiskLocation place : chain) {
      EXPECT_TRUE(seen.insert(domains.at(place.node)).second);
      used[place]++;
    }
  }
  size_t slots = 0;
  for (const FreeNode& node : request.nodes) {
    for (const FreeDisk& disk : node.disks) {
      EXPECT_LE((used[{node.id, disk.id}]), disk.slots);
      slots += disk.slots;
    }
  }
  EXPECT_EQ(plan.unused, slots - plan.chains.size() * request.replicas);
}

void expect_bar(size_t nodes, size_t targets_per_node, size_t replicas) {
  const auto request = request_of(nodes, 1, targets_per_node, replicas);
  const auto plan = plan_placement(request);
  ASSERT_TRUE(plan.ok());
  SCOPED_TRACE(
      fmt::format("{} nodes, {} targets each, {} replicas", nodes, targets_per_node, replicas));
  expect_rules(request, *plan);
  EXPECT_LT(plan->unused, replicas);
  const size_t ideal = (targets_per_node * (replicas - 1) + nodes - 2) / (nodes - 1);
  EXPECT_EQ(plan->shared_ideal, ideal);
  EXPECT_EQ(plan->shared_max, most_shared(*plan));
  EXPECT_LE(plan->shared_max, ideal + 1);
}

TEST(PlacementTest, NoPairOfNodesSharesMoreThanIdealPlusOne) {
  for (const size_t nodes : {6, 7, 13, 31, 64, 100}) {
    for (const size_t replicas : {2, 3}) {
      for (const size_t targets : {4, 16, 30, 60}) expect_bar(nodes, targets, replicas);
    }
  }
}

TEST(PlacementTest, TheBarHoldsForEveryNumberOfNodes) {
  if (std::getenv("FF_PLACEMENT_ALL") == nullptr) GTEST_SKIP() << "minutes: FF_PLACEMENT_ALL=1";
  for (size_t nodes = 6; nodes <= 100; nodes++) {
    for (const size_t replicas : {2, 3}) {
      for (const size_t targets : {3, 8, 16, 24, 48, 96, 160}) {
        expect_bar(nodes, targets, replicas);
      }
    }
  }
}

TEST(PlacementTest, DisksAndHeadsAreUsedEvenly) {
  const auto request = request_of(10, 4, 6, 3);
  const auto plan = plan_placement(request);
  ASSERT_TRUE(plan.ok());
  expect_rules(request, *plan);
  std::map<NodeId, size_t> heads;
  std::map<DiskLocation, size_t> used;
  for (const auto& chain : plan->chains) {
    heads[chain.front().node]++;
    for (const DiskLocation place : chain) used[place]++;
  }
  for (const auto& [node, count] : heads) EXPECT_NEAR(static_cast<double>(count), 8, 1) << node;
  for (const auto& [place, count] : used) EXPECT_EQ(count, 6u);
}

TEST(PlacementTest, EqualSeedsGiveEqualPlans) {
  auto request = request_of(9, 2, 5, 2);
  const auto first = plan_placement(request);
  const auto again = plan_placement(request);
  request.seed = 2;
  const auto other = plan_placement(request);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(first->chains, again->chains);
  EXPECT_NE(first->chains, other->chains);
}

TEST(PlacementTest, NoTwoReplicasLieInOneDomain) {
  auto request = request_of(9, 1, 12, 3);
  for (FreeNode& node : request.nodes) node.domain = fmt::format("rack{}", node.id % 3);
  const auto plan = plan_placement(request);
  ASSERT_TRUE(plan.ok());
  expect_rules(request, *plan);
  EXPECT_EQ(plan->chains.size(), 36u);
}

TEST(PlacementTest, UnequalNodesAreFilledAsFarAsPossible) {
  auto request = request_of(6, 1, 10, 2);
  request.nodes[0].disks[0].slots = 30;
  const auto plan = plan_placement(request);
  ASSERT_TRUE(plan.ok());
  expect_rules(request, *plan);
  EXPECT_EQ(plan->unused, 0u);
  request.chains_max = 3;
  EXPECT_EQ(plan_placement(request)->chains.size(), 3u);
}

TEST(PlacementTest, TooFewNodesAreAnErrorThatSaysHowMany) {
  const auto plan = plan_placement(request_of(2, 1, 10, 3));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Errc::usage);
  EXPECT_NE(plan.error().hint.find("at least 3 nodes"), std::string::npos);
  auto one_domain = request_of(4, 1, 10, 2);
  for (FreeNode& node : one_domain.nodes) node.domain = "rack";
  EXPECT_FALSE(plan_placement(one_domain).ok());
  EXPECT_FALSE(plan_placement(request_of(4, 1, 10, 0)).ok());
  EXPECT_FALSE(plan_placement(request_of(40, 1, 10, kReplicasMax + 1)).ok());
}

// A growing cluster: existing chains stay, new ones use free slots.
TEST(PlacementTest, NewNodesGetChainsAndOldChainsStay) {
  Routing routing;
  for (NodeId id = 1; id <= 9; id++) {
    routing.nodes[id] = {.id = id, .disks = {{.id = 1}, {.id = 2}}};
  }
  const auto add = [&](const PlacementPlan& plan) {
    for (const auto& places : plan.chains) {
      Chain chain{.id = routing.chains.size() + 1};
      for (const DiskLocation at : places)
        chain.targets.push_back({.node = at.node, .disk = at.disk});
      routing.chains[chain.id] = std::move(chain);
    }
  };
  const auto first = plan_placement(placement_request(routing, 4, 3));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->chains.size(), 24u);
  add(*first);
  EXPECT_FALSE(plan_placement(placement_request(routing, 4, 3)).ok());  // full

  for (NodeId id = 10; id <= 13; id++) routing.nodes[id] = {.id = id, .disks = {{.id = 7}}};
  routing.nodes[14] = {.id = 14, .disks = {{.id = 7}}, .draining = true};
  const auto request = placement_request(routing, 4, 3);
  EXPECT_EQ(request.existing.size(), 24u);
  const auto second = plan_placement(request);
  ASSERT_TRUE(second.ok());
  expect_rules(request, *second);
  EXPECT_EQ(second->chains.size(), 5u);
  for (const auto& chain : second->chains) {
    for (const DiskLocation at : chain) EXPECT_TRUE(at.node >= 10 && at.node <= 13);
  }
}

}  // namespace
}  // namespace ff::cluster

// Offers of nodes to a manager with an old database, and the adopted routing.
#include "storage/cluster/adoption.h"

#include <gtest/gtest.h>

#include "storage/cluster/manager.h"

namespace ff::cluster {
namespace {

// Routing of this version: one node per version, and as many chains as fit.
Routing routing_of(uint64_t version, const std::string& cluster = "c") {
  Routing routing{.cluster = cluster, .version = version};
  for (uint64_t i = 1; i <= version; i++) {
    routing.nodes[i] = NodeInfo{.id = i, .name = "n", .changed = i};
    routing.chains[i] = Chain{.id = i, .version = version, .changed = i};
  }
  return routing;
}

void offer(Adoption& adoption, NodeId node, const Routing& routing) {
  for (uint64_t since = 0;;) {
    const RoutingDelta page = routing.delta_since(since, 200);
    ASSERT_TRUE(adoption.offer(node, page).ok());
    if (page.complete) return;
    since = page.to;
  }
}

TEST(AdoptionTest, TheNewestOfAllNodesIsTaken) {
  const Routing own = routing_of(3);
  Adoption adoption;
  EXPECT_FALSE(adoption.newest(own, true).ok());  // nobody has offered
  for (NodeId node = 1; node <= 5; node++) {
    EXPECT_FALSE(adoption.has_offer(node, node));
    offer(adoption, node, routing_of(node));
    EXPECT_TRUE(adoption.has_offer(node, node));
  }
  const auto newest = adoption.newest(own, false);
  ASSERT_TRUE(newest.ok()) << newest.error().message;
  EXPECT_EQ(newest->version, 5u);
  EXPECT_EQ(newest->chains, routing_of(5).chains);
}

TEST(AdoptionTest, AnAbsentNodeMayHoldANewerOne) {
  const Routing own = routing_of(2);
  Adoption adoption;
  for (const NodeId node : {1, 2, 4}) offer(adoption, node, routing_of(4));
  const auto refused = adoption.newest(own, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("node 3"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(adoption.newest(own, true).ok());
  offer(adoption, 3, routing_of(2));
  EXPECT_TRUE(adoption.newest(own, false).ok());
}

TEST(AdoptionTest, WhatDoesNotFitIsRefused) {
  Adoption adoption;
  offer(adoption, 1, routing_of(4));
  EXPECT_FALSE(adoption.newest(routing_of(4), true).ok());             // not newer
  EXPECT_FALSE(adoption.newest(routing_of(3, "another"), true).ok());  // another cluster's
  Routing forked = routing_of(3);
  forked.chains[9] = Chain{.id = 9, .version = 1, .changed = 3};
  EXPECT_FALSE(adoption.newest(forked, true).ok());  // made after the restore
  const Routing held = routing_of(5);
  EXPECT_FALSE(adoption.offer(2, held.delta_since(3, 200)).ok());  // not from the beginning
  const RoutingDelta first = held.delta_since(0, 1);
  ASSERT_FALSE(first.complete);
  ASSERT_TRUE(adoption.offer(2, first).ok());
  EXPECT_FALSE(adoption.has_offer(2, first.to));
  EXPECT_FALSE(adoption.offer(2, held.delta_since(first.to + 1, 1)).ok());  // a page is missing
  offer(adoption, 2, held);
  EXPECT_TRUE(adoption.has_offer(2, 5));
}

TEST(AdoptionTest, TheVersionComesWithTheLastStep) {
  const Routing own = routing_of(3), next = routing_of(3 * kChangeMax / 2);
  const auto steps = routing_changes_between(own, next);
  ASSERT_GT(steps.size(), 2u);
  Routing result = own;
  for (const RoutingDelta& step : steps) {
    EXPECT_EQ(result.version, own.version);
    EXPECT_LE(step.size(), kChangeMax);
    ASSERT_TRUE(result.apply(step).ok());
  }
  EXPECT_EQ(result.version, next.version);
  EXPECT_EQ(result.nodes, next.nodes);
  EXPECT_EQ(result.chains, next.chains);
}

}  // namespace
}  // namespace ff::cluster

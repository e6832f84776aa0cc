// Routes between nodes: each reaches all nodes, no node has many children, and few links cross
// zones.
#include "training/collective/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <set>

namespace ff::collective {
namespace {

using Of = std::function<PieceRoute(uint32_t node)>;

std::vector<uint32_t> one_zone(uint32_t nodes) { return std::vector<uint32_t>(nodes, 0); }

// Links agree at both ends, and the root reaches every node once. Returns the longest path.
uint32_t check(uint32_t nodes, uint32_t root, const Of& of) {
  std::vector<uint32_t> up(nodes, 0), down(nodes, 0);
  for (uint32_t node = 0; node < nodes; node++) {
    const PieceRoute route = of(node);
    EXPECT_EQ(route.up_to.has_value(), node != root);
    EXPECT_EQ(route.down_from.has_value(), node != root);
    for (const uint32_t below : route.up_from) {
      EXPECT_EQ(of(below).up_to, node);
      up[below]++;
    }
    for (const uint32_t below : route.down_to) {
      EXPECT_EQ(of(below).down_from, node);
      down[below]++;
    }
  }
  uint32_t longest = 0;
  for (uint32_t node = 0; node < nodes; node++) {
    EXPECT_EQ(up[node], node == root ? 0 : 1);
    EXPECT_EQ(down[node], node == root ? 0 : 1);
    for (const bool goes_up : {true, false}) {
      uint32_t steps = 0;
      for (uint32_t at = node; at != root && steps <= nodes; steps++) {
        at = goes_up ? *of(at).up_to : *of(at).down_from;
      }
      EXPECT_LT(steps, nodes) << "a circle";
      longest = std::max(longest, steps);
    }
  }
  return longest;
}

TEST(RouteTest, TreesReachAllNodesFromEachRootInFewSteps) {
  for (uint32_t nodes = 1; nodes <= 40; nodes++) {
    const Trees trees(one_zone(nodes));
    for (uint32_t root = 0; root < nodes; root++) {
      for (const bool second : {false, true}) {
        SCOPED_TRACE(testing::Message() << nodes << " nodes, root " << root << ' ' << second);
        const uint32_t longest =
            check(nodes, root, [&](uint32_t node) { return trees.route(root, second, node); });
        EXPECT_LE(longest, static_cast<uint32_t>(std::bit_width(nodes - 1)));
      }
    }
  }
}

TEST(RouteTest, ALeafOfOneTreeIsInnerInTheOther) {
  for (uint32_t nodes = 2; nodes <= 40; nodes++) {
    const Trees trees(one_zone(nodes));
    uint32_t leaves_twice = 0;
    for (uint32_t node = 1; node < nodes; node++) {
      const bool in_first = trees.route(0, false, node).up_from.count == 0;
      const bool in_second = trees.route(0, true, node).up_from.count == 0;
      leaves_twice += in_first && in_second;
      // So no node sends more than it receives: three links in both trees, two of them up.
      const uint32_t ways =
          trees.route(0, false, node).up_from.count + trees.route(0, true, node).up_from.count;
      EXPECT_LE(ways, 2) << node << " of " << nodes;
    }
    EXPECT_EQ(leaves_twice, nodes % 2 == 0 ? 1 : 0) << nodes;
  }
}

TEST(RouteTest, RingsForwardToTheNextNode) {
  for (uint32_t nodes = 1; nodes <= 9; nodes++) {
    for (uint32_t root = 0; root < nodes; root++) {
      const Of of = [&](uint32_t node) { return ring_route(nodes, root, node); };
      EXPECT_EQ(check(nodes, root, of), nodes - 1);
      for (uint32_t node = 0; node < nodes; node++) {
        EXPECT_EQ(of(node).up_to.value_or((node + 1) % nodes), (node + 1) % nodes);
      }
    }
  }
}

TEST(RouteTest, OneLinkConnectsTwoZones) {
  for (const auto& zones : std::vector<std::vector<uint32_t>>{{0, 1},
                                                              {0, 0, 0, 1},
                                                              {0, 0, 0, 0, 0, 1, 1, 1, 1},
                                                              {0, 1, 2, 3},
                                                              {0, 1, 0, 1, 0},
                                                              {0, 0, 1, 2, 1, 0, 2},
                                                              {0, 0, 1, 1, 1, 2, 2}}) {
    const auto nodes = static_cast<uint32_t>(zones.size());
    const Trees trees(zones);
    std::set<std::pair<uint32_t, uint32_t>> across;
    for (uint32_t root = 0; root < nodes; root++) {
      for (const bool second : {false, true}) {
        const Of of = [&](uint32_t node) { return trees.route(root, second, node); };
        check(nodes, root, of);
        for (uint32_t node = 0; node < nodes; node++) {
          for (const uint32_t below : of(node).up_from) {
            if (zones[node] != zones[below]) {
              across.insert({std::min(node, below), std::max(node, below)});
            }
          }
        }
      }
    }
    EXPECT_EQ(across.size(), std::ranges::max(zones));
  }
}

}  // namespace
}  // namespace ff::collective

// The encoded table of nodes, and names of ranks.
#include "training/collective/world.h"

#include <gtest/gtest.h>

namespace ff::collective {
namespace {

World three_nodes() {
  World world;
  world.nodes = {{.first_rank = 0, .pids = {10, 11}, .zone = "east", .host = "one"},
                 {.first_rank = 2, .pids = {20}, .zone = "east", .host = "two"},
                 {.first_rank = 3, .pids = {30, 31, 32}, .zone = "west", .host = "three"}};
  world.nodes[1].address.host = "10.0.0.2";
  world.nodes[1].address.port = 4000;
  return world;
}

TEST(WorldTest, RanksAndZonesHaveTheirNodes) {
  const World world = three_nodes();
  EXPECT_EQ(world.ranks(), 6u);
  const std::vector<uint32_t> nodes = {0, 0, 1, 2, 2, 2};
  for (uint32_t rank = 0; rank < nodes.size(); rank++) EXPECT_EQ(world.node_of(rank), nodes[rank]);
  EXPECT_EQ(world.name_of(4), "rank 4 (process 31 on three)");
  EXPECT_EQ(world.zones(), (std::vector<uint32_t>{0, 0, 1}));
  World mixed = three_nodes();
  mixed.nodes[1].zone = "west";
  mixed.nodes[2].zone = "east";
  EXPECT_EQ(mixed.zones(), (std::vector<uint32_t>{0, 1, 0}));
}

TEST(WorldTest, EncodingAndParsingKeepIt) {
  const std::string bytes = encode_world(three_nodes());
  const auto parsed = parse_world(as_bytes(bytes));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(encode_world(*parsed), bytes);
  EXPECT_EQ(parsed->nodes[1].address.text(), "10.0.0.2:4000");
  // Names from elsewhere are not for terminals as they are.
  World strange = three_nodes();
  strange.nodes[0].host = "\x1b[31m";
  EXPECT_EQ(parse_world(as_bytes(encode_world(strange)))->nodes[0].host, "\\x1b[31m");
}

TEST(WorldTest, TruncatedTablesAndGapsAreRefused) {
  const std::string bytes = encode_world(three_nodes());
  for (size_t size = 0; size < bytes.size(); size++) {
    EXPECT_FALSE(parse_world(as_bytes(bytes).first(size)).ok()) << size;
  }
  EXPECT_FALSE(parse_world(as_bytes(bytes + "x")).ok());
  World gap = three_nodes();
  gap.nodes[2].first_rank = 4;
  EXPECT_FALSE(parse_world(as_bytes(encode_world(gap))).ok());
}

}  // namespace
}  // namespace ff::collective

// Copies of the routing: with any changes and any page size, a copy that applies deltas becomes
// equal. And round trips of the messages.
#include "storage/cluster/routing.h"

#include <gtest/gtest.h>

#include "platform/base/rng.h"
#include "storage/cluster/small_cluster.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {
namespace {

NodeInfo some_node(NodeId id) {
  return {.id = id,
          .name = "n\x01",
          .generation = 3,
          .addresses = {"a:1", "b:2"},
          .domain = "rack",
          .disks = {{.id = 5, .path = "/d", .capacity = 6}, {.id = 7}},
          .draining = true,
          .changed = 8};
}

Chain some_chain(ChainId id, uint64_t version) {
  Chain chain{.id = id, .version = version, .changed = 11};
  chain.targets.push_back({.id = 12, .node = 13, .disk = 14, .state = TargetState::serving});
  chain.targets.push_back({.id = 15,
                           .node = 16,
                           .disk = 17,
                           .state = TargetState::waiting,
                           .created = true,
                           .draining = true,
                           .stop = true,
                           .complete_version = 18,
                           .written_version = 19,
                           .chunks = 20,
                           .bytes = 21});
  chain.aside.push_back({.target = 22,
                         .node = 23,
                         .disk = 24,
                         .complete_version = 25,
                         .written_version = 26,
                         .chunks = 27,
                         .bytes = 28,
                         .wall_ns = 29,
                         .changed = 30,
                         .dropped = true,
                         .missing_below = 31});
  chain.missing_below = 32;
  chain.lost_version = 33;
  return chain;
}

bool operator==(const Routing& a, const Routing& b) {
  return a.cluster == b.cluster && a.version == b.version && a.nodes == b.nodes &&
         a.chains == b.chains && a.tables == b.tables;
}

// A change of one to three records.
void change(Routing& routing, Rng& rng) {
  routing.version++;
  for (uint64_t i = rng.below(3) + 1; i > 0; i--) {
    const uint64_t id = rng.below(20) + 1;
    switch (rng.below(3)) {
      case 0:
        routing.nodes[id] = some_node(id);
        routing.nodes[id].generation = routing.version;
        routing.nodes[id].changed = routing.version;
        break;
      case 1:
        routing.chains[id] = some_chain(id, routing.version);
        routing.chains[id].changed = routing.version;
        break;
      default: {
        const TableKey key{id, routing.version};
        routing.tables[key] = {
            .id = id, .version = key.second, .chains = {1, 2}, .changed = key.second};
      }
    }
  }
}

TEST(RoutingTest, ACopyThatAsksForChangesEndsEqual) {
  for (uint64_t seed = 1; seed <= 50; seed++) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    Routing truth{.cluster = "c1"};
    Routing copy;
    for (int round = 0; round < 30; round++) {
      for (uint64_t i = rng.below(8); i > 0; i--) change(truth, rng);
      const size_t bytes = rng.below(2000);
      for (bool complete = false; !complete;) {
        const auto sent = from_wire(to_wire(truth.delta_since(copy.version, bytes)));
        ASSERT_TRUE(sent.ok());
        complete = sent->complete;
        EXPECT_EQ(complete, sent->to == truth.version);
        FF_ASSERT_OK(copy.apply(*sent));
      }
      ASSERT_TRUE(copy == truth);
    }
  }
}

TEST(RoutingTest, OlderOnesGapsAndOtherClustersAreRefused) {
  SeededRng rng(1);
  Routing truth{.cluster = "c1"};
  for (int i = 0; i < 10; i++) change(truth, rng);
  Routing copy;
  RoutingDelta gap = truth.delta_since(5, SIZE_MAX);
  EXPECT_EQ(code_of(copy.apply(gap)), Errc::refused);
  FF_ASSERT_OK(copy.apply(truth.delta_since(0, SIZE_MAX)));
  const Routing held = copy;
  RoutingDelta older = truth.delta_since(0, SIZE_MAX);
  older.to = 9;
  EXPECT_EQ(code_of(copy.apply(older)), Errc::refused);
  RoutingDelta other = truth.delta_since(10, SIZE_MAX);
  other.cluster = "c2";
  EXPECT_EQ(code_of(copy.apply(other)), Errc::refused);
  EXPECT_TRUE(copy == held);
}

TEST(RoutingTest, TheNewestTableIsFound) {
  Routing routing;
  routing.tables[{1, 1}] = {.id = 1, .version = 1};
  routing.tables[{1, 2}] = {.id = 1, .version = 2};
  routing.tables[{3, 9}] = {.id = 3, .version = 9};
  EXPECT_EQ(routing.table(0), nullptr);
  EXPECT_EQ(routing.table(1)->version, 2u);
  EXPECT_EQ(routing.table(2), nullptr);
  EXPECT_EQ(routing.table(3)->version, 9u);
}

TEST(WireTest, RecordsComeBackAsTheyWere) {
  EXPECT_EQ(from_wire(to_wire(some_node(1))).value(), some_node(1));
  EXPECT_EQ(from_wire(to_wire(some_chain(1, 2))).value(), some_chain(1, 2));
  const ChainTable table{.id = 1, .version = 2, .chains = {3, 4}, .changed = 5};
  EXPECT_EQ(from_wire(to_wire(table)), table);
  const DataLoss loss{
      .chain = 1, .version = 2, .promoted = 3, .abandoned = 4, .wall_ns = -5, .requested_by = "op"};
  EXPECT_EQ(from_wire(to_wire(loss)), loss);
}

TEST(WireTest, HeartbeatsComeBackAsTheyWere) {
  Heartbeat beat{.cluster = "c1", .node = some_node(1), .sequence = 2, .routing_version = 3};
  beat.targets.push_back({.target = 4,
                          .chain = 5,
                          .local = LocalTargetState::online,
                          .chain_version = 6,
                          .copied = 7,
                          .to_copy = 8});
  beat.disks.push_back({.disk = 9, .used = 10, .error = "I/O error"});
  const auto back = from_wire(to_wire(beat));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->cluster, beat.cluster);
  EXPECT_EQ(back->node, beat.node);
  EXPECT_EQ(back->sequence, beat.sequence);
  EXPECT_EQ(back->routing_version, beat.routing_version);
  EXPECT_EQ(back->targets, beat.targets);
  EXPECT_EQ(back->disks, beat.disks);
  HeartbeatResponse answer;
  answer.changes.to = 3;
  answer.predecessors.push_back({.target = 1, .confirmed_version = 2});
  const auto answered = from_wire(to_wire(answer));
  ASSERT_TRUE(answered.ok());
  EXPECT_EQ(answered->changes.to, 3u);
  EXPECT_EQ(answered->predecessors, answer.predecessors);
}

TEST(WireTest, WhatMakesNoSenseIsCorrupt) {
  auto chain = to_wire(some_chain(1, 2));
  for (const uint32_t state : {0, 6, 1000}) {
    chain.mutable_targets(1)->set_state(state);
    EXPECT_EQ(code_of(from_wire(chain)), Errc::corrupt);
  }
  chain.clear_targets();
  EXPECT_EQ(code_of(from_wire(chain)), Errc::corrupt);
  for (size_t i = 0; i <= kReplicasMax; i++) chain.add_targets()->set_state(1);
  EXPECT_EQ(code_of(from_wire(chain)), Errc::corrupt);
  wire::HeartbeatRequest beat;
  beat.add_targets()->set_local(4);
  EXPECT_EQ(code_of(from_wire(beat)), Errc::corrupt);
  wire::Node node;
  for (size_t i = 0; i <= kDisksMax; i++) node.add_disks();
  EXPECT_EQ(code_of(from_wire(node)), Errc::corrupt);
}

}  // namespace
}  // namespace ff::cluster

// Manager and members together: who may serve when, which changes are published when, and commands
// of the operator. Only tests advance the time.
#include "storage/cluster/manager.h"

#include <gtest/gtest.h>

#include "storage/cluster/small_cluster.h"

namespace ff::cluster {
namespace {

class ManagerTest : public testing::Test {
 protected:
  // A chain over all three nodes, all serving.
  void make() {
    cluster.make_chain({1, 2, 3});
    cluster.run({1, 2, 3}, 5 * kSecond);
    ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  }
  Manager& manager() { return *cluster.manager; }
  Heartbeat beat_of(NodeId id) { return cluster.members.at(id)->next_heartbeat(); }

  SmallCluster cluster{3};
};

TEST_F(ManagerTest, ANewChainComesToServeInFull) {
  cluster.make_chain({1, 2, 3});
  EXPECT_EQ(cluster.text(), "1:lastsrv 2:offline 3:offline");
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  for (const NodeId node : {1, 2, 3}) {
    EXPECT_TRUE(cluster.reads(node)) << node;
    EXPECT_TRUE(cluster.writes(node)) << node;
  }
  for (const Target& target : cluster.chain().targets) EXPECT_TRUE(target.created);
}

TEST_F(ManagerTest, ASilentNodeStopsServingBeforeItsChainGoesOn) {
  make();
  const int64_t last_ns = cluster.now_ns - kHeartbeatIntervalNs;  // of node 1's last heartbeat
  cluster.now_ns = last_ns + kNodeLeaseNs - 1;
  EXPECT_TRUE(cluster.writes(1));
  cluster.now_ns = last_ns + kNodeLeaseNs;
  EXPECT_FALSE(cluster.writes(1));
  EXPECT_FALSE(cluster.reads(1));
  cluster.run({2, 3}, last_ns + kNodeFailureNs - cluster.now_ns);
  cluster.now_ns = last_ns + kNodeFailureNs;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  cluster.now_ns++;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  // It returns without a restart.
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:serving");
}

TEST_F(ManagerTest, ARestartedNodeIsTakenOutAtOnceAndReportsOnlyThen) {
  make();
  cluster.start(1);
  EXPECT_FALSE(cluster.writes(1));
  EXPECT_TRUE(beat_of(1).targets.empty());
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(cluster.writes(1));  // routing still shows it serving
  EXPECT_TRUE(beat_of(1).targets.empty());
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  EXPECT_TRUE(beat_of(1).targets.empty());
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(beat_of(1).targets.size(), 1u);
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:serving");
}

TEST_F(ManagerTest, ProcessesThatWereReplacedAreRefused) {
  make();
  const Heartbeat old = beat_of(1);
  cluster.start(1);
  FF_ASSERT_OK(cluster.beat(1));
  Heartbeat late = old;
  late.sequence += 100;
  EXPECT_EQ(code_of(manager().heartbeat(late, cluster.now_ns)), Errc::refused);
  // A new primary knows the generation from the stored routing.
  cluster.publish();
  cluster.fail_over();
  EXPECT_EQ(code_of(manager().heartbeat(late, cluster.now_ns)), Errc::refused);
}

TEST_F(ManagerTest, StartsOfAProcessAreCounted) {
  make();
  EXPECT_EQ(manager().node_status(1)->restarts, 0u);
  const int64_t since_ns = manager().node_status(1)->generation_since_ns;
  cluster.now_ns += kSecond;
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(manager().node_status(1)->generation_since_ns, since_ns);
  cluster.start(1);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(manager().node_status(1)->restarts, 1u);
  EXPECT_EQ(manager().node_status(1)->generation_since_ns, cluster.now_ns);
  EXPECT_EQ(manager().node_status(2)->restarts, 0u);
}

TEST_F(ManagerTest, OvertakenReportsAreRefused) {
  const Heartbeat first = beat_of(1);
  const Heartbeat second = beat_of(1);
  EXPECT_TRUE(manager().heartbeat(second, cluster.now_ns).ok());
  EXPECT_EQ(code_of(manager().heartbeat(first, cluster.now_ns)), Errc::refused);
  EXPECT_EQ(code_of(manager().heartbeat(second, cluster.now_ns)), Errc::refused);
}

TEST_F(ManagerTest, ReportsOfAnOlderChainVersionMoveNothing) {
  make();
  cluster.now_ns += kNodeFailureNs / 2;
  cluster.run({2, 3}, 7 * kSecond);
  cluster.run({1, 2}, kSecond);
  ASSERT_EQ(cluster.text().substr(0, 9), "2:serving");
  // Node 1 syncs; a report that it was copied under an earlier version must not promote it.
  Heartbeat beat = beat_of(1);
  ASSERT_EQ(beat.targets.size(), 1u);
  const uint64_t version = cluster.chain().version;
  beat.targets[0].local = LocalTargetState::uptodate;
  beat.targets[0].chain_version = version - 1;
  const std::string before = cluster.text();
  ASSERT_TRUE(manager().heartbeat(beat, cluster.now_ns).ok());
  cluster.publish();
  EXPECT_EQ(cluster.text(), before);
  EXPECT_EQ(cluster.chain().version, version);
}

TEST_F(ManagerTest, ANewPrimaryWaitsBeforeItFailsAnyone) {
  make();
  cluster.now_ns += kNodeFailureNs - 1;  // as if the old primary had answered until now
  cluster.fail_over();
  cluster.now_ns += kNodeFailureNs;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  FF_ASSERT_OK(cluster.beat(2));
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  cluster.now_ns++;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 1:offline 3:offline");
}

TEST_F(ManagerTest, NodesThatAChangeConcernsWaitUntilItIsPublished) {
  make();
  cluster.run({2, 3}, kNodeFailureNs + 2 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  cluster.now_ns += kNodeFailureNs - kHeartbeatIntervalNs;
  FF_ASSERT_OK(cluster.beat(3));
  cluster.now_ns += 2 * kHeartbeatIntervalNs;
  ASSERT_FALSE(manager().propose(cluster.now_ns).empty());  // node 2 has failed; being written
  EXPECT_TRUE(manager().must_wait(2));
  EXPECT_FALSE(manager().must_wait(3));
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  manager().applied();
  EXPECT_FALSE(manager().must_wait(2));
  EXPECT_EQ(cluster.text(), "3:serving 2:offline 1:offline");
}

TEST_F(ManagerTest, AFailedDiskLeavesAtOnceAndStaysOutUntilTheChainHasChanged) {
  make();
  const TargetId target = cluster.target_on(1);
  Member& member = *cluster.members.at(1);
  member.set_usable(target, false);
  EXPECT_FALSE(cluster.writes(1));
  FF_ASSERT_OK(cluster.beat(1));
  member.set_usable(target, true);
  EXPECT_FALSE(cluster.writes(1));  // the manager may be publishing the chain without it
  EXPECT_EQ(member.local_state(target), LocalTargetState::offline);
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(member.local_state(target), LocalTargetState::online);
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:serving");
}

TEST_F(ManagerTest, APromotedTargetReadsOnlyOnceAllBeforeItKnow) {
  make();
  cluster.run({1, 2}, kNodeFailureNs + 2 * kSecond);
  ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
  const auto both = [&](NodeId id) {
    cluster.work(id);
    FF_ASSERT_OK(cluster.beat(id));
    cluster.publish();
  };
  // Only node 3 gets the next changes, once node 2 has confirmed to be its predecessor.
  for (int i = 0; i < 10 && cluster.text() != "1:serving 2:serving 3:syncing"; i++) both(3);
  both(1);
  both(2);
  for (int i = 0; i < 10 && cluster.text() != "1:serving 2:serving 3:serving"; i++) both(3);
  ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  both(3);
  both(3);
  EXPECT_TRUE(cluster.writes(3));
  EXPECT_FALSE(cluster.reads(3));
  both(2);  // learns of the version
  both(3);
  EXPECT_FALSE(cluster.reads(3));
  both(2);  // confirms it
  both(3);
  EXPECT_FALSE(cluster.reads(3));  // node 1 may still think that node 2 is the last
  both(1);
  both(3);
  EXPECT_FALSE(cluster.reads(3));
  both(1);
  EXPECT_FALSE(cluster.reads(3));
  both(3);
  EXPECT_TRUE(cluster.reads(3));
}

TEST_F(ManagerTest, TheLastThatServedComesBackAlone) {
  make();
  cluster.run({1}, kNodeFailureNs + 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:offline 3:offline");
  cluster.silence(kNodeFailureNs + 1);
  cluster.run({2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "1:lastsrv 2:waiting 3:waiting");
  EXPECT_FALSE(cluster.writes(2));
  cluster.start(1);
  cluster.run({1, 2, 3}, 6 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
}

TEST_F(ManagerTest, AnOldDatabaseStopsTheManager) {
  make();
  const Routing old = manager().routing();
  cluster.run({1, 2}, kNodeFailureNs + 2 * kSecond);
  cluster.manager = std::make_unique<Manager>(old, cluster.now_ns);
  const auto beaten = cluster.beat(1);
  ASSERT_FALSE(beaten.ok());
  EXPECT_NE(beaten.error().message.find("older than its cluster"), std::string::npos);
  ASSERT_TRUE(manager().halted().has_value());
  EXPECT_FALSE(cluster.beat(2).ok());
  cluster.now_ns += 2 * kNodeFailureNs;
  EXPECT_TRUE(manager().propose(cluster.now_ns).empty());
  EXPECT_FALSE(manager().drain_node(1, true).ok());
}

TEST_F(ManagerTest, AChainNewerThanItsOwnStopsTheManager) {
  make();
  Heartbeat beat = beat_of(1);
  beat.targets[0].chain_version++;
  EXPECT_FALSE(manager().heartbeat(beat, cluster.now_ns).ok());
  EXPECT_TRUE(manager().halted().has_value());
}

TEST_F(ManagerTest, NodesOfOtherClustersAndSenselessOnesAreRefused) {
  Heartbeat beat = beat_of(1);
  beat.cluster = "c2";
  EXPECT_EQ(code_of(manager().heartbeat(beat, cluster.now_ns)), Errc::refused);
  beat = beat_of(1);
  beat.node.id = 0;
  EXPECT_EQ(code_of(manager().heartbeat(beat, cluster.now_ns)), Errc::refused);
  beat = beat_of(1);
  beat.node.name = std::string(kTextMax + 1, 'x');
  EXPECT_EQ(code_of(manager().heartbeat(beat, cluster.now_ns)), Errc::refused);
  beat = beat_of(1);
  beat.node.disks.push_back(beat.node.disks[0]);
  EXPECT_EQ(code_of(manager().heartbeat(beat, cluster.now_ns)), Errc::refused);
  EXPECT_FALSE(manager().halted().has_value());
}

TEST_F(ManagerTest, ADrainedTargetLeavesWhenItHasStoppedAndComesBack) {
  make();
  const TargetId target = cluster.target_on(1);
  FF_ASSERT_OK(cluster.order(manager().drain_target(target, true)));
  EXPECT_EQ(code_of(manager().drain_target(target, true)), Errc::exists);
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  EXPECT_TRUE(cluster.writes(1));  // it does not know yet
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(cluster.writes(1));
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  FF_ASSERT_OK(cluster.beat(2));  // another that serves has to be certain
  FF_ASSERT_OK(cluster.beat(2));
  FF_ASSERT_OK(cluster.beat(1));
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  EXPECT_EQ(
      manager().not_serving_reason(cluster.chain(), cluster.chain().targets[2], cluster.now_ns),
      "drained by the operator");
  FF_ASSERT_OK(cluster.order(manager().drain_target(target, false)));
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:serving");
}

TEST_F(ManagerTest, DrainingEveryNodeLeavesOneThatServes) {
  make();
  for (const NodeId node : {1, 2, 3}) {
    FF_ASSERT_OK(cluster.order(manager().drain_node(node, true)));
  }
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:offline 3:offline");
  EXPECT_TRUE(cluster.writes(1));
  EXPECT_EQ(
      manager().not_serving_reason(cluster.chain(), cluster.chain().targets[0], cluster.now_ns),
      "cannot be drained: it is the last serving target of its chain");
  FF_ASSERT_OK(cluster.order(manager().drain_node(2, false)));
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 1:offline 3:offline");
}

TEST_F(ManagerTest, ADrainedTargetGoesOnWhenTheOthersFail) {
  make();
  cluster.run({1, 2}, kNodeFailureNs + 2 * kSecond);
  ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
  FF_ASSERT_OK(cluster.order(manager().drain_target(cluster.target_on(1), true)));
  cluster.run({1}, kNodeFailureNs + 2 * kSecond);  // node 2 dies before it knows
  EXPECT_EQ(cluster.text(), "1:serving 2:offline 3:offline");
  EXPECT_TRUE(cluster.writes(1));
}

TEST_F(ManagerTest, ALossIsAcceptedOnlyForALiveReplicaOfALostChain) {
  make();
  const TargetId one = cluster.target_on(1), two = cluster.target_on(2);
  const auto accept = [&](ChainId chain, TargetId promote) {
    return manager().accept_loss(
        {.chain = chain, .promote = promote, .requested_by = "op", .wall_ns = 1}, cluster.now_ns);
  };
  EXPECT_EQ(code_of(accept(1, two)), Errc::refused);
  cluster.run({1}, kNodeFailureNs + 2 * kSecond);
  cluster.silence(kNodeFailureNs + 1);
  cluster.run({2}, 3 * kSecond);
  ASSERT_EQ(cluster.text(), "1:lastsrv 2:waiting 3:offline");
  EXPECT_EQ(code_of(accept(1, one)), Errc::usage);
  EXPECT_EQ(code_of(accept(1, cluster.target_on(3))), Errc::refused);
  EXPECT_EQ(code_of(accept(9, two)), Errc::usage);
  const auto accepted = accept(1, two);
  ASSERT_TRUE(accepted.ok());
  const DataLoss loss{.chain = 1,
                      .version = cluster.chain().version + 1,
                      .promoted = two,
                      .abandoned = one,
                      .wall_ns = 1,
                      .requested_by = "op"};
  EXPECT_EQ(accepted->loss, loss);
  manager().applied();
  EXPECT_EQ(cluster.text(), "2:serving 1:offline 3:offline");
  // The data of the dead target is kept, and a new target is synced in its place.
  EXPECT_NE(cluster.target_on(1), one);
  ASSERT_EQ(cluster.chain().aside.size(), 1u);
  EXPECT_EQ(cluster.chain().aside[0].target, one);
  EXPECT_GT(cluster.chain().aside[0].complete_version, 0u);
  EXPECT_EQ(cluster.chain().lost_version, cluster.chain().version);
  EXPECT_EQ(cluster.chain().missing_below, 0u);  // nothing is known to be missing
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 1:serving 3:serving");
}

// Nodes 1 and 2 have all data of a chain; node 4 is syncing in place of node 3.
class LossTest : public testing::Test {
 protected:
  void SetUp() override {
    cluster.make_chain({1, 2, 3});
    cluster.run({1, 2, 3, 4}, 5 * kSecond);
    one = cluster.target_on(1);
    two = cluster.target_on(2);
    cluster.run({1, 2, 4}, kNodeFailureNs + 2 * kSecond);
    FF_ASSERT_OK(cluster.order(manager().replace_target(cluster.target_on(3), {4, 1})));
    four = cluster.target_on(4);
    cluster.sizes = {{one, {64, 64 << 20, 1100}}, {two, {64, 64 << 20, 1100}}, {four, {0, 0, 0}}};
    cluster.copies = false;
    cluster.run({1, 2, 4}, 3 * kSecond);
    ASSERT_EQ(cluster.text(), "1:serving 2:serving 4:syncing");
  }
  void die(const std::vector<NodeId>& rest) {
    for (const NodeId id : rest) FF_ASSERT_OK(cluster.beat(id));
    cluster.run(rest, kNodeFailureNs + 2 * kSecond);
  }
  // Node 1 served last and may or may not return; the others follow.
  void lose_one(const std::vector<NodeId>& alive) {
    die({1, 4});
    cluster.sizes[one] = {70, 70 << 20, 1200};
    cluster.run({1, 4}, 2 * kSecond);
    die({4});
    cluster.run(alive, 3 * kSecond);
    cluster.start(2);
  }
  Manager& manager() { return *cluster.manager; }
  Result<DataLossPlan> plan(TargetId promote) {
    return manager().plan_loss({.chain = 1, .promote = promote, .requested_by = "op", .wall_ns = 1},
                               cluster.now_ns);
  }
  Result<void> accept(TargetId promote, bool incomplete = false) {
    return cluster.order(manager().accept_loss({.chain = 1,
                                                .promote = promote,
                                                .requested_by = "op",
                                                .wall_ns = 1,
                                                .incomplete = incomplete},
                                               cluster.now_ns));
  }

  SmallCluster cluster{4};
  TargetId one = 0, two = 0, four = 0;
};

TEST_F(LossTest, TheReplicaThatHasMostIsPromotedAndNotTheFirstThatIsAlive) {
  lose_one({4});
  cluster.run({2, 4}, 3 * kSecond);
  ASSERT_EQ(cluster.chain().targets.front().id, one);
  ASSERT_EQ(cluster.chain().targets.front().state, TargetState::lastsrv);
  // The syncing target cannot be promoted, even by id.
  EXPECT_EQ(code_of(accept(four)), Errc::refused);
  EXPECT_EQ(code_of(accept(four, true)), Errc::refused);
  const auto chosen = plan(0);
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  EXPECT_EQ(chosen->loss.promoted, two);
  EXPECT_FALSE(chosen->incomplete);
  EXPECT_EQ(chosen->loss.chunks, 6u);
  EXPECT_EQ(chosen->loss.bytes, 6u << 20);
  FF_ASSERT_OK(accept(0));
  ASSERT_EQ(cluster.chain().aside.size(), 1u);  // the empty target is not set aside
  EXPECT_EQ(cluster.chain().aside[0].target, one);
  EXPECT_EQ(cluster.chain().aside[0].chunks, 70u);
  cluster.copies = true;
  cluster.run({1, 2, 4}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 4:serving 1:serving");
  EXPECT_EQ(cluster.chain().aside.size(), 1u);
}

TEST_F(LossTest, ACompleteReplicaOnASilentNodeIsWaitedFor) {
  lose_one({4});
  const auto none = plan(0);
  ASSERT_EQ(code_of(none), Errc::refused);
  EXPECT_NE(none.error().message.find(fmt::format("target {} on node 2", two)), std::string::npos)
      << none.error().message;
  EXPECT_EQ(code_of(accept(four, true)), Errc::refused);
  // Lost for good: the operator replaces it first, then chooses the target to promote.
  FF_ASSERT_OK(cluster.order(manager().replace_target(two, {3, 1})));
  EXPECT_EQ(code_of(plan(0)), Errc::refused);
  EXPECT_EQ(code_of(accept(four)), Errc::refused);
  const auto by_number = plan(four);
  ASSERT_TRUE(by_number.ok()) << by_number.error().message;
  EXPECT_TRUE(by_number->incomplete);
  EXPECT_EQ(by_number->loss.chunks, 70u);
  EXPECT_EQ(by_number->loss.bytes, 70u << 20);
  FF_ASSERT_OK(accept(four, true));
  // Absent chunks of existing files now count as missing.
  EXPECT_EQ(cluster.chain().missing_below, 1201u);
}

TEST_F(LossTest, ADecisionIsNotCarriedOutOnAChainThatHasChanged) {
  lose_one({4});
  cluster.run({2, 4}, 3 * kSecond);
  const uint64_t version = cluster.chain().version;
  const auto with = [&](uint64_t expect) {
    return code_of(manager().plan_loss({.chain = 1, .expect = expect}, cluster.now_ns));
  };
  EXPECT_EQ(with(version - 1), Errc::refused);
  EXPECT_EQ(with(version), std::nullopt);
}

TEST_F(LossTest, OneThatWasSetAsideIsChosenAfterAll) {
  lose_one({4});
  cluster.run({2, 4}, 3 * kSecond);
  FF_ASSERT_OK(accept(0));
  cluster.copies = true;
  cluster.run({2, 4}, 3 * kSecond);
  EXPECT_EQ(code_of(accept(one)), Errc::refused);  // its node is silent
  cluster.run({1, 2, 4}, 3 * kSecond);
  ASSERT_EQ(cluster.chain().targets.front().id, two);
  const uint64_t before = cluster.chain().version;
  FF_ASSERT_OK(accept(one));
  // It must not serve while node 2 may still serve.
  EXPECT_EQ(cluster.chain().targets.front().id, one);
  cluster.work(1);
  FF_ASSERT_OK(cluster.beat(1));
  cluster.work(1);
  FF_ASSERT_OK(cluster.beat(1));
  cluster.publish();
  EXPECT_TRUE(cluster.members.at(2)->may_write(two, cluster.now_ns));
  EXPECT_EQ(cluster.chain().targets.front().state, TargetState::lastsrv);
  cluster.run({1, 2, 4}, 8 * kSecond);
  EXPECT_EQ(cluster.chain().targets.front().id, one);
  EXPECT_EQ(cluster.text().find("offline"), std::string::npos) << cluster.text();
  EXPECT_NE(cluster.chain().lost_version, before);
  const SetAside* const left = find_set_aside(cluster.chain(), two);
  ASSERT_NE(left, nullptr);
  EXPECT_FALSE(left->dropped);
}

TEST_F(LossTest, WhatWasSetAsideIsDroppedByTheOperatorOrInTime) {
  lose_one({4});
  cluster.run({2, 4}, 3 * kSecond);
  EXPECT_EQ(code_of(manager().drop_target(two)), Errc::usage);
  FF_ASSERT_OK(accept(0));
  manager().set_lost_retention(10 * kSecond, 5 * kSecond);
  cluster.run({2, 4}, kSecond);
  EXPECT_FALSE(find_set_aside(cluster.chain(), one)->dropped);
  FF_ASSERT_OK(cluster.order(manager().drop_target(one)));
  EXPECT_EQ(code_of(manager().drop_target(one)), Errc::exists);
  EXPECT_TRUE(find_set_aside(cluster.chain(), one)->dropped);
  EXPECT_EQ(code_of(accept(one)), Errc::refused);
  cluster.copies = true;
  cluster.run({1, 2, 4}, 5 * kSecond);
  EXPECT_TRUE(cluster.chain().aside.empty());
  // Another loss, kept for the retention time.
  die({1, 4});
  die({1});
  cluster.copies = false;
  cluster.run({4}, kNodeFailureNs + 2 * kSecond);
  ASSERT_EQ(cluster.chain().targets.front().state, TargetState::lastsrv) << cluster.text();
  FF_ASSERT_OK(accept(0));
  ASSERT_EQ(cluster.chain().aside.size(), 1u);
  manager().set_lost_retention(10 * kSecond, 5 * kSecond);
  cluster.publish();
  EXPECT_FALSE(cluster.chain().aside[0].dropped);
  manager().set_lost_retention(10 * kSecond, 20 * kSecond);
  cluster.publish();
  EXPECT_TRUE(cluster.chain().aside[0].dropped);
}

// Nodes 1 and 2 are alive but cannot reach each other.
TEST_F(ManagerTest, ATargetThatTheOneBeforeItCannotReachStopsAndStaysOutForAWhile) {
  make();
  const TargetId one = cluster.target_on(1), two = cluster.target_on(2);
  const auto tell = [&] {
    cluster.members.at(1)->set_unreachable(
        one, UnreachableTarget{
                 .chain = 1, .chain_version = cluster.chain().version, .from = one, .to = two});
    FF_ASSERT_OK(cluster.beat(1));
    cluster.members.at(1)->set_unreachable(one, std::nullopt);
    cluster.publish();
  };
  tell();
  // It leaves only after it has reported itself offline: until then it may serve reads.
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  EXPECT_NE(manager().not_serving_reason(cluster.chain(), *find_target(cluster.chain(), two),
                                         cluster.now_ns),
            "");
  cluster.run({1, 2, 3}, 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:offline");
  const auto why = manager().not_serving_reason(cluster.chain(), *find_target(cluster.chain(), two),
                                                cluster.now_ns);
  EXPECT_NE(why.find("could not reach it"), std::string::npos) << why;
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:offline");
  cluster.run({1, 2, 3}, 6 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:serving");
  // The second time it stays out longer.
  tell();
  cluster.run({1, 2, 3}, 15 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:offline");
  cluster.run({1, 2, 3}, 10 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:serving");
  // A report under an outdated chain version is ignored.
  cluster.members.at(1)->set_unreachable(
      one, UnreachableTarget{
               .chain = 1, .chain_version = cluster.chain().version - 1, .from = one, .to = two});
  cluster.run({1, 2, 3}, 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:serving");
}

TEST_F(ManagerTest, OfTwoThatTellOfEachOtherTheLaterOneGoesAndTheLastNever) {
  make();
  const auto tell = [&](NodeId from, NodeId to) {
    cluster.members.at(from)->set_unreachable(
        cluster.target_on(from), UnreachableTarget{.chain = 1,
                                                   .chain_version = cluster.chain().version,
                                                   .from = cluster.target_on(from),
                                                   .to = cluster.target_on(to)});
  };
  tell(1, 2);
  tell(2, 1);
  cluster.run({1, 2, 3}, 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:serving 2:offline");
  tell(1, 3);
  cluster.run({1, 2, 3}, 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:offline 2:offline");
  tell(1, 1);
  tell(3, 1);
  cluster.run({1, 2, 3}, 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 3:offline 2:offline");
  EXPECT_TRUE(cluster.writes(1));
}

TEST_F(ManagerTest, AnOfflineTargetIsReplacedByAnEmptyOneThatIsMadeAnew) {
  make();
  const TargetId old = cluster.target_on(3);
  EXPECT_EQ(code_of(manager().replace_target(old, {3, 1})), Errc::refused);
  cluster.run({1, 2}, kNodeFailureNs + 2 * kSecond);
  EXPECT_EQ(code_of(manager().replace_target(old, {2, 1})), Errc::usage);
  EXPECT_EQ(code_of(manager().replace_target(old, {3, 9})), Errc::usage);
  FF_ASSERT_OK(cluster.order(manager().replace_target(old, {3, 1})));
  EXPECT_GT(cluster.target_on(3), old);
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
}

TEST_F(ManagerTest, ATargetThatWasMadeOnceIsNotMadeAgain) {
  make();
  cluster.run({1, 2}, kNodeFailureNs + 2 * kSecond);
  cluster.usable.clear();  // node 3 has lost its disk
  cluster.start(3);
  for (int i = 0; i < 5; i++) {
    FF_ASSERT_OK(cluster.beat(3));
    cluster.publish();
  }
  EXPECT_TRUE(cluster.members.at(3)->targets_to_create().empty());
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
}

TEST_F(ManagerTest, ChainsAndTablesAreChecked) {
  make();
  EXPECT_EQ(code_of(manager().create_chains({})), Errc::usage);
  EXPECT_EQ(code_of(manager().create_chains({{}})), Errc::usage);
  EXPECT_EQ(code_of(manager().create_chains({{{1, 1}, {1, 1}}})), Errc::usage);
  EXPECT_EQ(code_of(manager().create_chains({{{9, 1}}})), Errc::usage);
  EXPECT_EQ(code_of(manager().create_chains({{{1, 9}}})), Errc::usage);
  EXPECT_EQ(code_of(manager().set_table(1, {})), Errc::usage);
  EXPECT_EQ(code_of(manager().set_table(1, {1, 9})), Errc::usage);
  FF_ASSERT_OK(cluster.order(manager().set_table(1, {1})));
  EXPECT_EQ(code_of(manager().set_table(1, {1})), Errc::exists);
  const ChainId second = cluster.make_chain({2, 3, 1});
  FF_ASSERT_OK(cluster.order(manager().set_table(1, {1, second})));
  EXPECT_EQ(manager().routing().table(1)->version, 2u);
  EXPECT_EQ(manager().routing().tables.at({1, 1}).chains, std::vector<ChainId>{1});
  const ChainId pair = cluster.make_chain({2, 3});
  EXPECT_EQ(code_of(manager().set_table(2, {1, pair})), Errc::usage);
}

// A partial routing delta is no lease: the rest may show that the node is out.
TEST_F(ManagerTest, OnlyAnAnswerWithAllOfTheRoutingIsALease) {
  make();
  Member& member = *cluster.members.at(1);
  cluster.now_ns += kNodeLeaseNs;
  const Heartbeat sent = member.next_heartbeat();
  auto answer = manager().heartbeat(sent, cluster.now_ns);
  ASSERT_TRUE(answer.ok());
  answer->changes.complete = false;
  FF_ASSERT_OK(member.on_response(sent, cluster.now_ns, *answer));
  EXPECT_FALSE(member.has_lease(cluster.now_ns));
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_TRUE(member.has_lease(cluster.now_ns));
}

TEST_F(ManagerTest, OnlyNewsIsNews) {
  make();
  for (const NodeId id : {1, 2, 3}) FF_ASSERT_OK(cluster.beat(id));
  manager().take_changed();
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(manager().take_changed());
  cluster.members.at(1)->set_progress(cluster.target_on(1), 1, 2);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(manager().take_changed());
  cluster.members.at(1)->set_usable(cluster.target_on(1), false);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_TRUE(manager().take_changed());
  cluster.start(2);
  FF_ASSERT_OK(cluster.beat(2));
  EXPECT_TRUE(manager().take_changed());
}

// Changes are split into parts that fit a transaction.
TEST_F(ManagerTest, ManyChainsChangeInParts) {
  const std::vector<std::vector<DiskLocation>> chains(kChangeMax, {{1, 1}, {2, 1}});
  for (int i = 0; i < 3; i++) FF_ASSERT_OK(cluster.order(manager().create_chains(chains)));
  cluster.run({1, 2, 3}, 8 * kSecond);
  for (const auto& [id, chain] : manager().routing().chains) {
    ASSERT_EQ(cluster.text(id), "1:serving 2:serving");
  }
  cluster.now_ns += kNodeFailureNs + 1;
  FF_ASSERT_OK(cluster.beat(2));
  for (int parts = 0; parts < 3; parts++) {
    EXPECT_EQ(manager().propose(cluster.now_ns).changes.size(), kChangeMax);
    manager().applied();
  }
  EXPECT_TRUE(manager().propose(cluster.now_ns).empty());
}

}  // namespace
}  // namespace ff::cluster

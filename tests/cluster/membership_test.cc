// Manager and members together: who may serve when, what is published when, what the operator may
// do. Time moves only where a test says so.
#include "cluster/manager.h"

#include <gtest/gtest.h>

#include "cluster/small_cluster.h"

namespace ff::cluster {
namespace {

class ManagerTest : public testing::Test {
 protected:
  // A chain over all three nodes that serves in full.
  void make() {
    cluster.make_chain({1, 2, 3});
    cluster.run({1, 2, 3}, 5 * kSecond);
    ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  }
  Manager& manager() { return *cluster.manager; }
  Heartbeat beat_of(NodeId id) { return cluster.members.at(id)->report(); }

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
  const int64_t last_ns = cluster.now_ns - kHeartbeatNs;  // of node 1's last heartbeat
  cluster.now_ns = last_ns + kServeNs - 1;
  EXPECT_TRUE(cluster.writes(1));
  cluster.now_ns = last_ns + kServeNs;
  EXPECT_FALSE(cluster.writes(1));
  EXPECT_FALSE(cluster.reads(1));
  cluster.run({2, 3}, last_ns + kFailNs - cluster.now_ns);
  cluster.now_ns = last_ns + kFailNs;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "1:serving 2:serving 3:serving");
  cluster.now_ns++;
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  // It comes back without having been started again.
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
  // Another primary knows the generation from what is written down.
  cluster.publish();
  cluster.fail_over();
  EXPECT_EQ(code_of(manager().heartbeat(late, cluster.now_ns)), Errc::refused);
}

TEST_F(ManagerTest, StartsOfAProcessAreCounted) {
  make();
  EXPECT_EQ(manager().seen(1)->restarts, 0u);
  const int64_t since_ns = manager().seen(1)->since_ns;
  cluster.now_ns += kSecond;
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(manager().seen(1)->since_ns, since_ns);
  cluster.start(1);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(manager().seen(1)->restarts, 1u);
  EXPECT_EQ(manager().seen(1)->since_ns, cluster.now_ns);
  EXPECT_EQ(manager().seen(2)->restarts, 0u);
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
  cluster.now_ns += kFailNs / 2;
  cluster.run({2, 3}, 7 * kSecond);
  cluster.run({1, 2}, kSecond);
  ASSERT_EQ(cluster.text().substr(0, 9), "2:serving");
  // Node 1 syncs; a report that it was copied under an earlier version must not promote it.
  Heartbeat beat = beat_of(1);
  ASSERT_EQ(beat.targets.size(), 1u);
  const uint64_t version = cluster.chain().version;
  beat.targets[0].local = Local::uptodate;
  beat.targets[0].chain_version = version - 1;
  const std::string before = cluster.text();
  ASSERT_TRUE(manager().heartbeat(beat, cluster.now_ns).ok());
  cluster.publish();
  EXPECT_EQ(cluster.text(), before);
  EXPECT_EQ(cluster.chain().version, version);
}

TEST_F(ManagerTest, ANewPrimaryWaitsBeforeItFailsAnyone) {
  make();
  cluster.now_ns += kFailNs - 1;  // as if the old primary had answered until now
  cluster.fail_over();
  cluster.now_ns += kFailNs;
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
  cluster.run({2, 3}, kFailNs + 2 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  cluster.now_ns += kFailNs - kHeartbeatNs;
  FF_ASSERT_OK(cluster.beat(3));
  cluster.now_ns += 2 * kHeartbeatNs;
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
  EXPECT_EQ(member.local(target), Local::offline);
  cluster.publish();
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:offline");
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_EQ(member.local(target), Local::online);
  cluster.run({1, 2, 3}, 3 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 3:serving 1:serving");
}

TEST_F(ManagerTest, APromotedTargetReadsOnlyOnceAllBeforeItKnow) {
  make();
  cluster.run({1, 2}, kFailNs + 2 * kSecond);
  ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
  const auto both = [&](NodeId id) {
    cluster.work(id);
    FF_ASSERT_OK(cluster.beat(id));
    cluster.publish();
  };
  // Only node 3 hears of what follows, once node 2 has confirmed that it is its predecessor.
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
  cluster.run({1}, kFailNs + 2 * kSecond);
  EXPECT_EQ(cluster.text(), "1:serving 2:offline 3:offline");
  cluster.silence(kFailNs + 1);
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
  cluster.run({1, 2}, kFailNs + 2 * kSecond);
  cluster.manager = std::make_unique<Manager>(old, cluster.now_ns);
  const auto beaten = cluster.beat(1);
  ASSERT_FALSE(beaten.ok());
  EXPECT_NE(beaten.error().message.find("older than its cluster"), std::string::npos);
  ASSERT_TRUE(manager().halted().has_value());
  EXPECT_FALSE(cluster.beat(2).ok());
  cluster.now_ns += 2 * kFailNs;
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
  EXPECT_EQ(manager().why(cluster.chain(), cluster.chain().targets[2], cluster.now_ns),
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
  EXPECT_EQ(manager().why(cluster.chain(), cluster.chain().targets[0], cluster.now_ns),
            "is to be drained, but is the last of its chain that serves");
  FF_ASSERT_OK(cluster.order(manager().drain_node(2, false)));
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 1:offline 3:offline");
}

TEST_F(ManagerTest, ADrainedTargetGoesOnWhenTheOthersFail) {
  make();
  cluster.run({1, 2}, kFailNs + 2 * kSecond);
  ASSERT_EQ(cluster.text(), "1:serving 2:serving 3:offline");
  FF_ASSERT_OK(cluster.order(manager().drain_target(cluster.target_on(1), true)));
  cluster.run({1}, kFailNs + 2 * kSecond);  // node 2 dies before it knows
  EXPECT_EQ(cluster.text(), "1:serving 2:offline 3:offline");
  EXPECT_TRUE(cluster.writes(1));
}

TEST_F(ManagerTest, ALossIsAcceptedOnlyForALiveReplicaOfALostChain) {
  make();
  const TargetId one = cluster.target_on(1), two = cluster.target_on(2);
  EXPECT_EQ(code_of(manager().accept_loss(1, two, "op", 1)), Errc::refused);
  cluster.run({1}, kFailNs + 2 * kSecond);
  cluster.silence(kFailNs + 1);
  cluster.run({2}, 3 * kSecond);
  ASSERT_EQ(cluster.text(), "1:lastsrv 2:waiting 3:offline");
  EXPECT_EQ(code_of(manager().accept_loss(1, one, "op", 1)), Errc::usage);
  EXPECT_EQ(code_of(manager().accept_loss(1, cluster.target_on(3), "op", 1)), Errc::refused);
  EXPECT_EQ(code_of(manager().accept_loss(9, two, "op", 1)), Errc::usage);
  const auto accepted = manager().accept_loss(1, two, "op", 1);
  ASSERT_TRUE(accepted.ok());
  const Loss loss{.chain = 1,
                  .version = cluster.chain().version + 1,
                  .promoted = two,
                  .given_up = one,
                  .wall_ns = 1,
                  .by = "op"};
  EXPECT_EQ(accepted->loss, loss);
  manager().applied();
  EXPECT_EQ(cluster.text(), "2:serving 1:offline 3:offline");
  cluster.run({1, 2, 3}, 5 * kSecond);
  EXPECT_EQ(cluster.text(), "2:serving 1:serving 3:serving");
}

TEST_F(ManagerTest, AnOfflineTargetIsReplacedByAnEmptyOneThatIsMadeAnew) {
  make();
  const TargetId old = cluster.target_on(3);
  EXPECT_EQ(code_of(manager().replace_target(old, {3, 1})), Errc::refused);
  cluster.run({1, 2}, kFailNs + 2 * kSecond);
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
  cluster.run({1, 2}, kFailNs + 2 * kSecond);
  cluster.usable.clear();  // node 3 has lost its disk
  cluster.start(3);
  for (int i = 0; i < 5; i++) {
    FF_ASSERT_OK(cluster.beat(3));
    cluster.publish();
  }
  EXPECT_TRUE(cluster.members.at(3)->to_make().empty());
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

// Part of the routing is no leave to serve: the rest may show that the node is out.
TEST_F(ManagerTest, OnlyAnAnswerWithAllOfTheRoutingIsALease) {
  make();
  Member& member = *cluster.members.at(1);
  cluster.now_ns += kServeNs;
  const Heartbeat sent = member.report();
  auto answer = manager().heartbeat(sent, cluster.now_ns);
  ASSERT_TRUE(answer.ok());
  answer->changes.complete = false;
  FF_ASSERT_OK(member.answered(sent, cluster.now_ns, *answer));
  EXPECT_FALSE(member.has_lease(cluster.now_ns));
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_TRUE(member.has_lease(cluster.now_ns));
}

TEST_F(ManagerTest, OnlyNewsIsNews) {
  make();
  for (const NodeId id : {1, 2, 3}) FF_ASSERT_OK(cluster.beat(id));
  manager().take_news();
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(manager().take_news());
  cluster.members.at(1)->set_progress(cluster.target_on(1), 1, 2);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_FALSE(manager().take_news());
  cluster.members.at(1)->set_usable(cluster.target_on(1), false);
  FF_ASSERT_OK(cluster.beat(1));
  EXPECT_TRUE(manager().take_news());
  cluster.start(2);
  FF_ASSERT_OK(cluster.beat(2));
  EXPECT_TRUE(manager().take_news());
}

// What fails at once is published in parts that fit a transaction.
TEST_F(ManagerTest, ManyChainsChangeInParts) {
  const std::vector<std::vector<Place>> chains(kChangeMax, {{1, 1}, {2, 1}});
  for (int i = 0; i < 3; i++) FF_ASSERT_OK(cluster.order(manager().create_chains(chains)));
  cluster.run({1, 2, 3}, 8 * kSecond);
  for (const auto& [id, chain] : manager().routing().chains) {
    ASSERT_EQ(cluster.text(id), "1:serving 2:serving");
  }
  cluster.now_ns += kFailNs + 1;
  FF_ASSERT_OK(cluster.beat(2));
  for (int parts = 0; parts < 3; parts++) {
    EXPECT_EQ(manager().propose(cluster.now_ns).changes.size(), kChangeMax);
    manager().applied();
  }
  EXPECT_TRUE(manager().propose(cluster.now_ns).empty());
}

}  // namespace
}  // namespace ff::cluster

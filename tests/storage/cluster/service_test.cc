// Manager services: election, takeover, and every command of the operator.
#include "storage/cluster/manager_service.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "storage/cluster/service_world.h"
#include "storage/cluster/stored_routing.h"
#include "storage/cluster/timing.h"

namespace ff::cluster {
namespace {

class ServiceTest : public testing::Test {
 protected:
  void start(int managers) {
    for (int i = 0; i < managers; i++) {
      managers_.push_back(std::make_unique<TestManager>(world_, i));
    }
  }
  // Index of the primary; -1: none.
  int primary() const {
    int found = -1;
    for (size_t i = 0; i < managers_.size(); i++) {
      if (managers_[i] == nullptr || !managers_[i]->service.is_primary()) continue;
      EXPECT_EQ(found, -1);
      found = static_cast<int>(i);
    }
    return found;
  }
  // Seconds until there is a primary other than `than`.
  double until_primary(int than = -1) {
    const double began = world_.seconds();
    while (primary() == than || primary() == -1) {
      world_.world.run_for(10 * kMillisecond);
      if (world_.seconds() > began + 60) break;
    }
    return world_.seconds() - began;
  }
  // A cluster of `nodes` nodes with one manager.
  void form(NodeId nodes) {
    start(1);
    until_primary();
    FF_ASSERT_OK(operator_.call(kInit, wire::InitRequest()));
    for (NodeId id = 1; id <= nodes; id++) {
      nodes_.push_back(std::make_unique<TestNode>(world_, id));
    }
    world_.world.run_for(3 * kSecond);
  }
  Result<wire::CommandReply> make_chain(const std::vector<NodeId>& nodes) {
    wire::CreateChainsRequest request;
    auto& chain = *request.add_chains();
    for (const NodeId id : nodes) {
      auto& target = *chain.add_targets();
      target.set_node(id);
      target.set_disk(1);
    }
    return operator_.call(kCreateChains, std::move(request));
  }

  ServiceWorld world_;
  std::vector<std::unique_ptr<TestManager>> managers_;
  TestOperator operator_{world_, 3};
  std::vector<std::unique_ptr<TestNode>> nodes_;
};

TEST_F(ServiceTest, OneBecomesPrimaryAndTheOthersPointToIt) {
  start(3);
  until_primary();
  world_.world.run_for(20 * kSecond);
  const int first = primary();
  ASSERT_NE(first, -1);
  EXPECT_EQ(managers_[static_cast<size_t>(first)]->service.epoch(), 1u);
  const auto status = operator_.status();
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->primary(), fmt::format("m{}:7000", first));
  EXPECT_EQ(status->epoch(), 1u);
  EXPECT_EQ(status->cluster(), "");
}

TEST_F(ServiceTest, AnotherTakesOverOnceTheLeaseHasRunOut) {
  start(3);
  until_primary();
  world_.world.run_for(5 * kSecond);
  const int first = primary();
  managers_[static_cast<size_t>(first)].reset();
  const double seconds = until_primary();
  EXPECT_GT(seconds, 2.0);  // renewed at most a second ago
  EXPECT_LT(seconds, 5.0);
  EXPECT_EQ(managers_[static_cast<size_t>(primary())]->service.epoch(), 2u);
}

TEST_F(ServiceTest, APrimaryThatGoesDownHandsOver) {
  start(2);
  until_primary();
  const int first = primary();
  run_task(world_.loop, managers_[static_cast<size_t>(first)]->service.close());
  EXPECT_LT(until_primary(first), 1.5);
}

TEST_F(ServiceTest, AManagerThatIsAloneWaitsForNobody) {
  start(1);
  until_primary();
  managers_.clear();
  managers_.push_back(std::make_unique<TestManager>(world_, 0, true));
  EXPECT_LT(until_primary(), 1.0);
}

TEST_F(ServiceTest, WithoutAClusterNodesAreToldToWait) {
  start(1);
  until_primary();
  TestNode node(world_, 1);
  world_.world.run_for(3 * kSecond);
  ASSERT_TRUE(node.heartbeats.last_error().has_value());
  EXPECT_EQ(node.heartbeats.last_error()->hint, "Initialize it: ff admin init");
  EXPECT_FALSE(node.member.has_lease(world_.loop.now_ns()));
  FF_ASSERT_OK(operator_.call(kInit, wire::InitRequest()));
  EXPECT_EQ(code_of(operator_.call(kInit, wire::InitRequest())), Errc::exists);
  world_.world.run_for(2 * kSecond);
  EXPECT_FALSE(node.heartbeats.last_error().has_value());
  EXPECT_TRUE(node.member.has_lease(world_.loop.now_ns()));
  EXPECT_EQ(node.member.routing().cluster, operator_.status()->cluster());
  EXPECT_GT(node.adopted, 0);
}

TEST_F(ServiceTest, ChainsServeSecondsAfterTheyWereMade) {
  form(3);
  FF_ASSERT_OK(make_chain({1, 2, 3}));
  EXPECT_EQ(operator_.status()->targets_not_serving(), 3u);
  EXPECT_EQ(operator_.status()->targets(0).why(), "is being created");
  world_.world.run_for(8 * kSecond);
  const auto status = operator_.status();
  EXPECT_EQ(status->targets_not_serving(), 0u);
  ASSERT_EQ(status->nodes_size(), 3);
  for (const auto& node : status->nodes()) {
    EXPECT_TRUE(node.alive());
    EXPECT_EQ(node.routing_version(), status->routing_version());
  }
  for (const auto& node : nodes_) {
    EXPECT_TRUE(node->member.may_read(node->member.self().id, world_.loop.now_ns()));
  }
}

TEST_F(ServiceTest, StatusSaysWhyATargetDoesNotServe) {
  form(3);
  FF_ASSERT_OK(make_chain({1, 2, 3}));
  world_.world.run_for(4 * kSecond);
  nodes_[2].reset();
  world_.world.run_for(13 * kSecond);
  auto status = operator_.status();
  ASSERT_EQ(status->targets_size(), 1);
  EXPECT_EQ(status->targets(0).target(), 3u);
  EXPECT_TRUE(status->targets(0).why().starts_with("no heartbeat of node 3 for 1"));
  EXPECT_FALSE(status->nodes(2).alive());

  wire::DrainRequest drain;
  drain.set_node(2);
  drain.set_drain(true);
  FF_ASSERT_OK(operator_.call(kDrain, drain));
  world_.world.run_for(3 * kSecond);
  status = operator_.status();
  ASSERT_EQ(status->targets_size(), 2);
  EXPECT_EQ(status->targets(0).why(), "drained by the operator");
  drain.set_drain(false);
  FF_ASSERT_OK(operator_.call(kDrain, drain));
  world_.world.run_for(3 * kSecond);
  EXPECT_EQ(operator_.status()->targets_size(), 1);
  EXPECT_EQ(code_of(operator_.call(kDrain, wire::DrainRequest())), Errc::usage);
}

TEST_F(ServiceTest, HowFullDisksAreIsKeptForThoseBesideThePrimary) {
  form(2);
  FF_ASSERT_OK(make_chain({1, 2}));
  kv::MemoryEngine engine(world_.store, world_.loop, world_.rng);
  int changed = 0;
  StoredRouting beside(engine, world_.loop, [&] { changed++; });
  Gate gate(world_.loop);
  gate.spawn(beside.run());
  const uint64_t capacity = nodes_[0]->member.self().disks.front().capacity;
  ASSERT_GT(capacity, 0u);
  nodes_[0]->member.set_disk_usage({{.disk = 1, .used = capacity / 100 * 96}});
  world_.world.run_for(20 * kSecond);
  EXPECT_EQ(beside.utilization().at({1, 1}), 96u);
  const int before = changed;
  world_.world.run_for(20 * kSecond);
  EXPECT_EQ(changed, before);
  run_task(world_.loop, gate.close(fail(Errc::interrupted, "the end")));
}

TEST_F(ServiceTest, ThePrimaryExportsMetricsOfTheCluster) {
  form(2);
  FF_ASSERT_OK(make_chain({1, 2}));
  world_.world.run_for(20 * kSecond);
  const std::string exported = world_.metrics.text();
  EXPECT_NE(exported.find("ff_cluster_primary 1\n"), std::string::npos) << exported;
  EXPECT_NE(exported.find("ff_cluster_chains{state=\"whole\"} 1\n"), std::string::npos) << exported;
  run_task(world_.loop, managers_[0]->service.close());
  world_.world.run_for(kSecond);
  EXPECT_NE(world_.metrics.text().find("ff_cluster_primary 0\n"), std::string::npos);
}

TEST_F(ServiceTest, AnAcceptedLossIsOnRecord) {
  form(2);
  FF_ASSERT_OK(make_chain({1, 2}));
  world_.world.run_for(4 * kSecond);
  nodes_[1].reset();
  world_.world.run_for(12 * kSecond);
  nodes_[0].reset();
  world_.world.run_for(12 * kSecond);
  nodes_[1] = std::make_unique<TestNode>(world_, 2, 1, 2);
  world_.world.run_for(3 * kSecond);
  nodes_[1]->member.set_usable(2, true);
  world_.world.run_for(3 * kSecond);
  wire::AcceptLossRequest request;
  request.set_chain(1);
  request.set_promote(2);
  request.set_by("op");
  FF_ASSERT_OK(operator_.call(kAcceptLoss, request));
  for (int manager = 0; manager < 2; manager++) {  // by this manager, and by one that loads it
    const auto status = operator_.status();
    ASSERT_EQ(status->losses_size(), 1);
    EXPECT_EQ(status->losses(0).promoted(), 2u);
    EXPECT_EQ(status->losses(0).given_up(), 1u);
    EXPECT_EQ(status->losses(0).by(), "op");
    managers_.clear();
    start(1);
    until_primary();
  }
}

TEST_F(ServiceTest, TablesAndReplacedTargetsAreDistributed) {
  form(3);
  FF_ASSERT_OK(make_chain({1, 2}));
  world_.world.run_for(4 * kSecond);
  wire::SetTableRequest table;
  table.set_table(1);
  table.add_chains(1);
  FF_ASSERT_OK(operator_.call(kSetTable, table));
  wire::DrainRequest drain;
  drain.set_target(2);
  drain.set_drain(true);
  FF_ASSERT_OK(operator_.call(kDrain, drain));
  world_.world.run_for(3 * kSecond);
  wire::ReplaceTargetRequest replace;
  replace.set_target(2);
  replace.mutable_place()->set_node(3);
  replace.mutable_place()->set_disk(1);
  FF_ASSERT_OK(operator_.call(kReplaceTarget, replace));
  world_.world.run_for(4 * kSecond);
  EXPECT_EQ(operator_.status()->targets_not_serving(), 0u);
  EXPECT_EQ(nodes_[0]->member.routing().table(1)->chains, std::vector<ChainId>{1});
  EXPECT_TRUE(nodes_[2]->member.may_read(3, world_.loop.now_ns()));
}

TEST_F(ServiceTest, RoutingIsGivenSinceAVersion) {
  form(2);
  FF_ASSERT_OK(make_chain({1, 2}));
  world_.world.run_for(4 * kSecond);
  wire::RoutingRequest request;
  const auto all = operator_.call(kRouting, request);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->changes().nodes_size(), 2);
  EXPECT_EQ(all->changes().chains_size(), 1);
  request.set_since(all->changes().to());
  const auto none = operator_.call(kRouting, request);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->changes().chains_size() + none->changes().nodes_size(), 0);
  EXPECT_TRUE(none->changes().complete());
}

TEST_F(ServiceTest, UsersHearOfTheRoutingAlone) {
  form(1);
  TestOperator someone(world_, 1, auth::user_entity({1000, 7}));
  EXPECT_TRUE(someone.call(kRouting, wire::RoutingRequest()).ok());
  for (const auto code :
       {code_of(someone.status()), code_of(someone.call(kInit, wire::InitRequest())),
        code_of(someone.call(kCreateChains, wire::CreateChainsRequest())),
        code_of(someone.call(kSetTable, wire::SetTableRequest())),
        code_of(someone.call(kDrain, wire::DrainRequest())),
        code_of(someone.call(kAcceptLoss, wire::AcceptLossRequest())),
        code_of(someone.call(kReplaceTarget, wire::ReplaceTargetRequest())),
        code_of(someone.call(kAdopt, wire::AdoptRequest())),
        code_of(someone.call(kHeartbeat, wire::HeartbeatRequest())),
        code_of(someone.call(kOffer, wire::OfferRequest()))}) {
    EXPECT_EQ(code, Errc::refused);
  }
}

TEST_F(ServiceTest, AHaltedManagerSaysSo) {
  form(1);
  Routing newer = nodes_[0]->member.routing();
  newer.version += 10;
  nodes_[0] = std::make_unique<TestNode>(world_, 1, 1, 2, newer);
  world_.world.run_for(2 * kSecond);
  ASSERT_TRUE(managers_[0]->service.halted().has_value());
  EXPECT_NE(operator_.status()->halted().find("older than its cluster"), std::string::npos);
  EXPECT_FALSE(operator_.call(kRouting, wire::RoutingRequest()).ok());
  EXPECT_FALSE(make_chain({1}).ok());
  EXPECT_FALSE(nodes_[0]->member.has_lease(world_.loop.now_ns()));
}

// A call that is not idempotent is executed at most once, and the caller learns when the outcome is
// open.
TEST_F(ServiceTest, CommandsAreNotRepeated) {
  form(2);
  world_.net.block("m0", "operator");  // answers are lost
  const auto made = make_chain({1, 2});
  EXPECT_EQ(code_of(made), Errc::deadline);
  world_.net.unblock("m0", "operator");
  world_.world.run_for(5 * kSecond);
  const auto routing = operator_.call(kRouting, wire::RoutingRequest());
  ASSERT_TRUE(routing.ok());
  EXPECT_LE(routing->changes().chains_size(), 1);
}

}  // namespace
}  // namespace ff::cluster

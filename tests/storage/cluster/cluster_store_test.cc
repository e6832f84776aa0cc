// The cluster store: writes are applied once even if responses are lost, and a lost lease blocks
// all writes.
#include "storage/cluster/cluster_store.h"

#include <gtest/gtest.h>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/memory_engine.h"
#include "platform/kv/sqlite_engine.h"
#include "platform/sim/sim_world.h"
#include "storage/cluster/small_cluster.h"

namespace ff::cluster {
namespace {

class StoreTest : public testing::TestWithParam<kv::MemoryFaults> {
 protected:
  template <class T>
  T run(Task<T> task) {
    return run_task(world_.loop(), std::move(task));
  }
  LeaderLease take(LeaderLease seen, std::string holder, uint64_t token) {
    auto lease = run(store_.acquire_lease(std::move(seen), std::move(holder), token, INT64_MAX));
    EXPECT_TRUE(lease.ok()) << (lease ? "" : lease.error().message);
    return lease ? *lease : LeaderLease();
  }
  Proposal proposal(uint64_t to, std::vector<Chain> chains = {}) {
    Proposal proposal;
    proposal.changes = {.cluster = "c1", .since = to - 1, .to = to, .chains = std::move(chains)};
    return proposal;
  }
  Result<void> write(const LeaderLease& lease, Proposal proposal) {
    return run(store_.write(lease, std::move(proposal), INT64_MAX));
  }

  sim::SimWorld world_;
  SeededRng rng_{3};
  kv::MemoryStore memory_;
  kv::MemoryEngine engine_{memory_, world_.loop(), rng_, GetParam()};
  ClusterStore store_{engine_};
};

INSTANTIATE_TEST_SUITE_P(Faults, StoreTest,
                         testing::Values(kv::MemoryFaults{}, kv::MemoryFaults{.delay_max_ns = 1000,
                                                                              .conflict = 0.3,
                                                                              .lost_answer = 0.4}));

TEST_P(StoreTest, OneHoldsTheLease) {
  EXPECT_EQ(run(store_.read_lease(INT64_MAX)).value(), LeaderLease());
  const LeaderLease first = take({}, "a:1", 1);
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(run(store_.read_lease(INT64_MAX)).value(), first);
  EXPECT_EQ(code_of(run(store_.acquire_lease({}, "b:1", 2, INT64_MAX))), Errc::exists);
  const auto renewed = run(store_.renew_lease(first, INT64_MAX));
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(renewed->epoch, 1u);
  // A manager that saw the lease before its renewal cannot acquire it.
  EXPECT_EQ(code_of(run(store_.acquire_lease(first, "b:1", 2, INT64_MAX))), Errc::exists);
  const LeaderLease second = take(*renewed, "b:1", 2);
  EXPECT_EQ(second.epoch, 2u);
  EXPECT_EQ(code_of(run(store_.renew_lease(*renewed, INT64_MAX))), Errc::refused);
  EXPECT_EQ(code_of(run(store_.release_lease(*renewed, INT64_MAX))), Errc::refused);
  FF_ASSERT_OK(run(store_.release_lease(second, INT64_MAX)));
  EXPECT_EQ(run(store_.read_lease(INT64_MAX)).value().holder, "");
  EXPECT_EQ(take(run(store_.read_lease(INT64_MAX)).value(), "a:1", 3).epoch, 3u);
}

TEST_P(StoreTest, ADeposedPrimaryWritesNothing) {
  const LeaderLease first = take({}, "a:1", 1);
  FF_ASSERT_OK(run(store_.init(first, "c1", INT64_MAX)));
  const LeaderLease second = take(first, "b:1", 2);
  EXPECT_EQ(code_of(write(first, proposal(2))), Errc::refused);
  EXPECT_EQ(code_of(run(store_.init(first, "c2", INT64_MAX))), Errc::refused);
  EXPECT_EQ(run(store_.load(INT64_MAX)).value().routing->version, 1u);
  FF_ASSERT_OK(write(second, proposal(2)));
  EXPECT_EQ(run(store_.load(INT64_MAX)).value().routing->version, 2u);
}

TEST_P(StoreTest, AProcessStartedAgainIsAnotherHolder) {
  const LeaderLease first = take({}, "a:1", 1);
  const LeaderLease second = take(first, "a:1", 2);
  LeaderLease forged = second;
  forged.token = 1;
  EXPECT_EQ(code_of(run(store_.renew_lease(forged, INT64_MAX))), Errc::refused);
  EXPECT_EQ(code_of(write(forged, proposal(2))), Errc::refused);
}

TEST_P(StoreTest, AClusterIsMadeOnce) {
  const LeaderLease lease = take({}, "a:1", 1);
  EXPECT_FALSE(run(store_.load(INT64_MAX)).value().routing.has_value());
  FF_ASSERT_OK(run(store_.init(lease, "c1", INT64_MAX)));
  EXPECT_EQ(code_of(run(store_.init(lease, "c2", INT64_MAX))), Errc::exists);
  EXPECT_EQ(run(store_.load(INT64_MAX)).value().routing->cluster, "c1");
}

TEST_P(StoreTest, WhatIsWrittenIsLoaded) {
  const LeaderLease lease = take({}, "a:1", 1);
  FF_ASSERT_OK(run(store_.init(lease, "c1", INT64_MAX)));
  Routing truth{.cluster = "c1", .version = 1};
  const auto apply = [&](Proposal next) {
    next.changes.since = truth.version;
    next.changes.to = truth.version + 1;
    FF_ASSERT_OK(truth.apply(next.changes));
    FF_ASSERT_OK(write(lease, std::move(next)));
  };
  Proposal first = proposal(2);
  first.changes.nodes = {SmallCluster::node(1, 1), SmallCluster::node(300, 1)};
  first.changes.tables = {{.id = 1, .version = 1, .chains = {1}},
                          {.id = 1, .version = 300, .chains = {1, 2}}};
  first.loss =
      DataLoss{.chain = 1, .version = 2, .promoted = 3, .abandoned = 4, .requested_by = "op"};
  apply(first);
  // More than one page.
  for (ChainId id = 1; id <= 4200; id += kChangeMax) {
    std::vector<Chain> chains;
    for (ChainId at = id; at < id + kChangeMax; at++) {
      chains.push_back({.id = at, .version = 1, .targets = {{.id = at}}});
    }
    apply(proposal(2, std::move(chains)));
  }
  const auto stored = run(store_.load(INT64_MAX));
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->routing->version, truth.version);
  EXPECT_EQ(stored->routing->nodes, truth.nodes);
  EXPECT_EQ(stored->routing->chains, truth.chains);
  EXPECT_EQ(stored->routing->tables, truth.tables);
  EXPECT_EQ(stored->losses, std::vector<DataLoss>{*first.loss});
}

// The embedded engine runs functions in another thread.
TEST(SqliteStoreTest, HoldsACluster) {
  SystemClock clock;
  SystemLoop loop(clock);
  io::TempDir dir;
  auto file = kv::SqliteStore::open(dir / "kv.db", clock, {}).value();
  kv::SqliteEngine engine(*file, loop);
  ClusterStore store(engine);
  const auto lease = run_task(loop, store.acquire_lease({}, "a:1", 1, INT64_MAX));
  ASSERT_TRUE(lease.ok());
  FF_ASSERT_OK(run_task(loop, store.init(*lease, "c1", INT64_MAX)));
  Proposal proposal;
  proposal.changes = {.cluster = "c1", .since = 1, .to = 2, .nodes = {SmallCluster::node(1, 1)}};
  FF_ASSERT_OK(run_task(loop, store.write(*lease, proposal, INT64_MAX)));
  const auto stored = run_task(loop, store.load(INT64_MAX));
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->routing->nodes.at(1), SmallCluster::node(1, 1));
}

}  // namespace
}  // namespace ff::cluster

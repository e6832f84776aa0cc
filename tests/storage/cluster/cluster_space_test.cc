// Capacity of a cluster for files, and the metrics of the primary.
#include "storage/cluster/cluster_space.h"

#include <gtest/gtest.h>

#include "storage/cluster/manager_metrics.h"
#include "storage/cluster/small_cluster.h"

namespace ff::cluster {
namespace {

// Three nodes with a disk of 1000 bytes each.
class ClusterSpaceTest : public testing::Test {
 protected:
  void make_table(const std::vector<std::vector<NodeId>>& chains) {
    std::vector<ChainId> ids;
    for (const auto& nodes : chains) ids.push_back(cluster_.make_chain(nodes));
    FF_ASSERT_OK(cluster_.order(cluster_.manager->set_table(1, std::move(ids))));
    cluster_.run({1, 2, 3}, 10 * kSecond);
  }
  void report(NodeId node, uint64_t used, std::string error = "") {
    cluster_.members.at(node)->set_disk_usage(
        {{.disk = 1, .used = used, .error = std::move(error)}});
    FF_ASSERT_OK(cluster_.beat(node));
  }
  uint64_t free() const { return cluster_space(*cluster_.manager).free; }

  SmallCluster cluster_{3};
};

TEST_F(ClusterSpaceTest, EqualDisksAreUsedCompletely) {
  make_table({{1, 2}, {2, 3}, {3, 1}});
  for (const NodeId node : {1, 2, 3}) report(node, 0);
  EXPECT_EQ(cluster_space(*cluster_.manager).total, 1500u);
  EXPECT_EQ(free(), 1500u);
  for (const NodeId node : {1, 2, 3}) report(node, 400);
  EXPECT_EQ(free(), 900u);
}

// The disk of node 1 is full, so only the chain of nodes 2 and 3 can take data.
TEST_F(ClusterSpaceTest, FreeSpaceBesideAFullDiskDoesNotCount) {
  make_table({{1, 2}, {2, 3}, {3, 1}});
  report(1, 1000);
  report(2, 300);
  report(3, 200);
  EXPECT_EQ(free(), 700u);
}

TEST_F(ClusterSpaceTest, ChainsGoOnWhenOthersAreFull) {
  make_table({{1, 2}, {1, 2}, {2, 3}});
  report(1, 800);  // 100 for each of its chains; then 600 are left for the third
  report(2, 200);
  report(3, 0);
  EXPECT_EQ(free(), 800u);
}

TEST_F(ClusterSpaceTest, DisksThatFailedOrNeverReportedLimitNothing) {
  make_table({{1, 2}, {2, 3}});
  report(2, 500);
  EXPECT_EQ(free(), 500u);
  report(3, 1000, "Input/output error");
  EXPECT_EQ(free(), 500u);
}

TEST_F(ClusterSpaceTest, WithoutChainsThereIsNone) {
  report(1, 0);
  EXPECT_EQ(cluster_space(*cluster_.manager).total, 0u);
  EXPECT_EQ(free(), 0u);
}

TEST_F(ClusterSpaceTest, ThePrimaryCountsEverythingByState) {
  make_table({{1, 2}, {2, 3}, {3, 1}});
  report(1, 990);
  report(2, 920);
  report(3, 0);
  Metrics metrics;
  ManagerMetrics gauges(metrics);
  EXPECT_NE(metrics.text().find("ff_cluster_primary 0\n"), std::string::npos);
  gauges.update(*cluster_.manager, cluster_.now_ns);
  for (const char* const line :
       {"ff_cluster_primary 1\n", "ff_cluster_nodes{state=\"alive\"} 3\n",
        "ff_cluster_disks{state=\"full\"} 1\n", "ff_cluster_disks{state=\"nearly_full\"} 1\n",
        "ff_cluster_disks{state=\"good\"} 1\n", "ff_cluster_chains{state=\"whole\"} 3\n",
        "ff_cluster_targets{state=\"serving\"} 6\n", "ff_cluster_size_bytes 1500\n",
        "ff_cluster_free_bytes 85\n"}) {
    EXPECT_NE(metrics.text().find(line), std::string::npos) << line << metrics.text();
  }
  cluster_.run({1, 2}, 20 * kSecond);
  gauges.update(*cluster_.manager, cluster_.now_ns);
  for (const char* const line :
       {"ff_cluster_nodes{state=\"silent\"} 1\n", "ff_cluster_disks{state=\"silent\"} 1\n",
        "ff_cluster_chains{state=\"degraded\"} 2\n"}) {
    EXPECT_NE(metrics.text().find(line), std::string::npos) << line << metrics.text();
  }
  gauges.clear();
  EXPECT_NE(metrics.text().find("ff_cluster_chains{state=\"degraded\"} 0\n"), std::string::npos);
}

}  // namespace
}  // namespace ff::cluster

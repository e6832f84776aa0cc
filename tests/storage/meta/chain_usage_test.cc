// New files are placed on chains with free space, each spread over disks.
#include "storage/meta/chain_usage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "platform/base/rng.h"

namespace ff::meta {
namespace {

using cluster::ChainId;
using cluster::DiskLocation;

constexpr cluster::TableId kTable = 1;

// Chains of two targets; each node has disk 1.
class PlacedFilesTest : public testing::Test {
 protected:
  ChainId add_chain(cluster::NodeId one, cluster::NodeId other) {
    const ChainId id = routing_.chains.size() + 1;
    routing_.chains[id] = {.id = id, .targets = {serving_on(one), serving_on(other)}};
    routing_.tables[{kTable, 1}].chains.push_back(id);
    return id;
  }
  static cluster::Target serving_on(cluster::NodeId node) {
    return {.node = node, .disk = 1, .state = cluster::TargetState::serving};
  }
  // 40 chains, each on two disks of its own.
  void add_separate_chains() {
    for (uint64_t i = 0; i < 40; i++) add_chain(2 * i + 1, 2 * i + 2);
  }
  void set_used(ChainId chain, uint32_t percent) {
    for (const cluster::Target& target : routing_.chains.at(chain).targets) {
      utilization_[{target.node, target.disk}] = percent;
    }
  }
  std::vector<ChainId> place(uint32_t stripe) {
    const Layout wanted{.table = kTable, .version = 1, .stripe = stripe, .seed = rng_.next()};
    const Layout got = with_free_chains(wanted, chain_usage_of(routing_, utilization_));
    EXPECT_GE(got.stripe, 1u);
    return stripe_chains(got, routing_.tables.at({kTable, 1}).chains);
  }
  // How many files with this stripe use each chain.
  std::map<ChainId, int> count_files(uint32_t stripe, int files = 400) {
    std::map<ChainId, int> count;
    for (int i = 0; i < files; i++) {
      for (const ChainId chain : place(stripe)) count[chain]++;
    }
    return count;
  }
  // Writes files of this size until one does not fit; returns the used share of all disks.
  double fill_with_files(double bytes, const std::map<DiskLocation, double>& capacity) {
    std::map<DiskLocation, double> used;
    for (;;) {
      const std::vector<ChainId> chains = place(4);
      for (const ChainId chain : chains) {
        for (const cluster::Target& target : routing_.chains.at(chain).targets) {
          used[{target.node, target.disk}] += bytes / static_cast<double>(chains.size());
        }
      }
      double all = 0;
      double total = 0;
      bool fits = true;
      for (const auto& [disk, size] : capacity) {
        all += used[disk];
        total += size;
        fits = fits && used[disk] <= size;
        utilization_[disk] = static_cast<uint32_t>(100 * used[disk] / size);
      }
      if (!fits) return (all - 2 * bytes) / total;
    }
  }

  cluster::Routing routing_;
  cluster::DiskUtilization utilization_;
  SeededRng rng_{3};
};

TEST_F(PlacedFilesTest, WithoutATableTheSeedStays) {
  const Layout wanted{.table = kTable, .version = 1, .stripe = 4, .seed = 77};
  EXPECT_EQ(with_free_chains(wanted, ChainUsage()), wanted);
}

TEST_F(PlacedFilesTest, EqualSeedsAndUsageGiveEqualLayouts) {
  add_separate_chains();
  set_used(3, 50);
  const Layout wanted{.table = kTable, .version = 1, .stripe = 4, .seed = 77};
  const ChainUsage usage = chain_usage_of(routing_, utilization_);
  EXPECT_EQ(with_free_chains(wanted, usage), with_free_chains(wanted, usage));
}

// Three nodes with a disk each, as `ff up` makes them. A stripe that loads one disk more than the
// others fills it long before the rest.
TEST_F(PlacedFilesTest, OneLargeFileCanUseMostOfTheSpace) {
  for (int i = 0; i < 4; i++) {
    add_chain(1, 2);
    add_chain(2, 3);
    add_chain(3, 1);
  }
  int fitting = 0;
  for (int run = 0; run < 100; run++) {
    std::map<cluster::NodeId, double> used;
    for (const ChainId chain : place(4)) {
      for (const cluster::Target& target : routing_.chains.at(chain).targets) {
        used[target.node] += 1200 / 4;  // the three disks have 1000 each, for two replicas
      }
    }
    fitting += std::ranges::all_of(used, [](const auto& disk) { return disk.second <= 1000; });
  }
  EXPECT_GT(fitting, 90);
}

TEST_F(PlacedFilesTest, AlmostAllSpaceIsUsedBeforeAFileDoesNotFit) {
  for (int i = 0; i < 4; i++) {
    add_chain(1, 2);
    add_chain(2, 3);
    add_chain(3, 1);
  }
  for (int run = 0; run < 20; run++) {
    utilization_.clear();
    EXPECT_GT(fill_with_files(100, {{{1, 1}, 1000}, {{2, 1}, 1000}, {{3, 1}, 1000}}), 0.9);
  }
}

TEST_F(PlacedFilesTest, UnequalDisksFillUpTogether) {
  std::map<DiskLocation, double> capacity;
  for (uint64_t one = 1; one <= 8; one++) {
    capacity[{one, 1}] = one <= 4 ? 2000 : 6000;
    for (uint64_t other = 1; other < one; other++) add_chain(one, other);
  }
  EXPECT_GT(fill_with_files(40, capacity), 0.85);
}

TEST_F(PlacedFilesTest, AStripeIsSpreadOverDisks) {
  for (uint64_t one = 1; one <= 8; one++) {
    for (uint64_t other = 1; other < one; other++) add_chain(one, other);
  }
  size_t spread = 0;
  for (int i = 0; i < 100; i++) {
    std::set<cluster::NodeId> nodes;
    for (const ChainId chain : place(4)) {
      for (const cluster::Target& target : routing_.chains.at(chain).targets) {
        nodes.insert(target.node);
      }
    }
    spread += nodes.size() >= 7 ? 1 : 0;
  }
  EXPECT_GT(spread, 90u);
}

TEST_F(PlacedFilesTest, EqualDisksGetFilesAlike) {
  add_separate_chains();
  for (ChainId chain = 1; chain <= 40; chain++) set_used(chain, 50);
  const auto count = count_files(1, 4000);
  EXPECT_EQ(count.size(), 40u);
  for (const auto& [chain, files] : count) EXPECT_NEAR(files, 100, 50) << chain;
}

TEST_F(PlacedFilesTest, FullChainsAreLeftOut) {
  add_separate_chains();
  for (ChainId chain = 1; chain <= 4; chain++) set_used(chain, 98 + chain % 2);
  const auto count = count_files(4);
  for (ChainId chain = 1; chain <= 4; chain++) EXPECT_FALSE(count.contains(chain)) << chain;
  EXPECT_EQ(count.size(), 36u);
}

// Of a chain whose servers are all gone, at least one target is lastsrv; a chain with one serving
// target takes writes.
TEST_F(PlacedFilesTest, ChainsWithoutAServingTargetAreLeftOutBeforeFullOnes) {
  add_separate_chains();
  for (ChainId chain = 1; chain <= 40; chain++) {
    std::vector<cluster::Target>& targets = routing_.chains[chain].targets;
    targets[1].state = cluster::TargetState::offline;
    if (chain > 2) targets[0].state = cluster::TargetState::lastsrv;
  }
  set_used(1, 100);
  set_used(2, 100);
  for (const auto& [chain, files] : count_files(4)) EXPECT_LE(chain, 2u) << files;
  for (auto& [id, chain] : routing_.chains) chain.targets[0].state = cluster::TargetState::lastsrv;
  EXPECT_EQ(place(4).size(), 4u);
}

// Two new nodes in a cluster that is nearly full: new files go there, with fewer chains if need be.
TEST_F(PlacedFilesTest, AFileHasFewerChainsWhereOnlyFewHaveSpace) {
  for (const uint32_t used : {100u, 93u}) {
    add_separate_chains();
    for (ChainId chain = 1; chain <= 38; chain++) set_used(chain, used);
    for (const auto& [chain, files] : count_files(8)) EXPECT_GT(chain, 38u) << files;
    routing_ = {};
  }
}

TEST_F(PlacedFilesTest, WhenAllChainsAreFullFilesAreStillPlaced) {
  add_separate_chains();
  for (ChainId chain = 1; chain <= 40; chain++) set_used(chain, 99);
  EXPECT_EQ(place(4).size(), 4u);
}

TEST_F(PlacedFilesTest, EmptyDisksAreChosenFirstAndNearlyFullOnesLast) {
  add_separate_chains();
  for (ChainId chain = 1; chain <= 40; chain++) {
    set_used(chain, chain <= 5 ? 92 : chain <= 30 ? 60 : 10);
  }
  int used = 0;
  int empty = 0;
  for (const auto& [chain, files] : count_files(2)) {
    EXPECT_GT(chain, 5u);
    (chain <= 30 ? used : empty) += files;
  }
  EXPECT_GT(empty, 10 * used);
}

TEST_F(PlacedFilesTest, TheFullestDiskOfAChainCounts) {
  routing_.tables[{kTable, 1}].chains = {7};
  routing_.tables[{kTable, 2}].chains = {7, 8};
  routing_.chains[7].targets = {serving_on(1), serving_on(2)};
  routing_.chains[7].targets[1].disk = 3;
  const ChainUsage usage = chain_usage_of(routing_, {{{1, 1}, 20}, {{2, 3}, 95}, {{2, 4}, 99}});
  EXPECT_EQ(usage.used, (std::vector<uint32_t>{20, 95}));
  EXPECT_EQ(usage.tables.at(kTable).chains.size(), 2u);
  EXPECT_EQ(usage.tables.at(kTable).best, SpaceClass::nearly_full);
  EXPECT_EQ(cluster::used_percent(95, 100), 95u);
  EXPECT_EQ(cluster::used_percent(uint64_t{1} << 60, uint64_t{1} << 60), 100u);
  EXPECT_EQ(cluster::used_percent(5, 0), 0u);
}

}  // namespace
}  // namespace ff::meta

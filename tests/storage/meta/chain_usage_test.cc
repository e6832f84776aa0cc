// New files are placed on chains with free space.
#include "storage/meta/chain_usage.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "platform/base/rng.h"

namespace ff::meta {
namespace {

constexpr cluster::TableId kTable = 1;

class RoomTest : public testing::Test {
 protected:
  RoomTest() {
    chain_usage_.tables[kTable].resize(40);
    std::iota(chain_usage_.tables[kTable].begin(), chain_usage_.tables[kTable].end(), 1);
  }
  // How often files with this stripe use each chain.
  std::map<cluster::ChainId, int> taken(uint32_t stripe, int files = 400) {
    std::map<cluster::ChainId, int> count;
    for (int i = 0; i < files; i++) {
      const Layout wanted{.table = kTable, .version = 1, .stripe = stripe, .seed = rng_.next()};
      const Layout got = with_free_chains(wanted, chain_usage_);
      EXPECT_GE(got.stripe, 1u);
      for (const auto chain : stripe_chains(got, chain_usage_.tables[kTable])) count[chain]++;
    }
    return count;
  }

  ChainUsage chain_usage_;
  SeededRng rng_{3};
};

TEST_F(RoomTest, WithoutNewsOrDifferencesSeedsStayAsTheyAre) {
  const Layout wanted{.table = kTable, .version = 1, .stripe = 4, .seed = 77};
  EXPECT_EQ(with_free_chains(wanted, ChainUsage()), wanted);
  EXPECT_EQ(with_free_chains(wanted, chain_usage_), wanted);
  for (uint64_t chain = 1; chain <= 40; chain++) chain_usage_.used[chain] = 99;
  EXPECT_EQ(with_free_chains(wanted, chain_usage_), wanted);
}

TEST_F(RoomTest, FullChainsAreLeftOut) {
  for (uint64_t chain = 1; chain <= 4; chain++) chain_usage_.used[chain] = 98 + chain % 2;
  const auto count = taken(4);
  for (uint64_t chain = 1; chain <= 4; chain++) EXPECT_FALSE(count.contains(chain)) << chain;
  EXPECT_EQ(count.size(), 36u);
}

TEST_F(RoomTest, AFileHasFewerChainsWhereOnlyFewHaveRoom) {
  for (uint64_t chain = 1; chain <= 38; chain++) chain_usage_.used[chain] = 100;
  for (const auto& [chain, files] : taken(8)) EXPECT_GT(chain, 38u) << files;
}

TEST_F(RoomTest, NearlyFullOnesComeAfterAllOthersAndEmptyOnesFirst) {
  for (uint64_t chain = 1; chain <= 40; chain++) {
    chain_usage_.used[chain] = chain <= 5 ? 92 : chain <= 30 ? 60 : 10;
  }
  const auto count = taken(2);
  int old = 0;
  int fresh = 0;
  for (const auto& [chain, files] : count) {
    EXPECT_GT(chain, 5u);
    (chain <= 30 ? old : fresh) += files;
  }
  EXPECT_GT(fresh, old);
}

TEST_F(RoomTest, AChainIsAsFullAsItsFullestDisk) {
  cluster::Routing routing;
  routing.tables[{kTable, 1}].chains = {7};
  routing.tables[{kTable, 2}].chains = {7, 8};
  routing.chains[7].targets = {{.id = 1, .node = 1, .disk = 1}, {.id = 2, .node = 2, .disk = 3}};
  const ChainUsage usage = chain_usage_of(routing, {{{1, 1}, 20}, {{2, 3}, 95}, {{2, 4}, 99}});
  EXPECT_EQ(usage.used.at(7), 95u);
  EXPECT_EQ(usage.tables.at(kTable).size(), 2u);
  EXPECT_EQ(cluster::used_percent(95, 100), 95u);
  EXPECT_EQ(cluster::used_percent(uint64_t{1} << 60, uint64_t{1} << 60), 100u);
  EXPECT_EQ(cluster::used_percent(5, 0), 0u);
}

}  // namespace
}  // namespace ff::meta

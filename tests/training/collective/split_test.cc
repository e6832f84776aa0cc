// Groups of ranks out of one communicator: any ranks, in any order, of one host and of several.
#include "training/collective/split.h"

#include "training/collective/checks.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

using SplitShape = std::vector<uint32_t>;  // ranks of each node

class SplitTest : public testing::TestWithParam<SplitShape> {};
std::string split_name(const testing::TestParamInfo<SplitShape>& shape) {
  return fmt::format("{}", fmt::join(shape.param, "_"));
}
INSTANTIATE_TEST_SUITE_P(On, SplitTest,
                         testing::Values(SplitShape{4}, SplitShape{2, 2}, SplitShape{1, 2, 1}),
                         split_name);

struct SplitStop {
  SystemClock clock = {};
  StopToken stop{clock};
};

// Splits, and checks the new ranks by what each group gathers: ranks of the parent, in order.
std::unique_ptr<Communicator> check_split(Communicator& ranks, const SplitStop& stop,
                                          uint32_t color, uint32_t key,
                                          const std::vector<int32_t>& wanted) {
  auto made = ranks.split(color, key, stop.stop);
  EXPECT_TRUE(made.ok()) << made.error().message;
  if (!made || *made == nullptr) {
    EXPECT_TRUE(made.ok() && wanted.empty());
    return nullptr;
  }
  Communicator& group = **made;
  EXPECT_EQ(group.ranks(), wanted.size());
  const auto own = static_cast<int32_t>(ranks.rank());
  std::vector<int32_t> gathered(group.ranks());
  const auto run = group.run({.kind = Collective::allgather,
                              .type = DataType::i32,
                              .count = 1,
                              .in = &own,
                              .out = gathered.data()});
  EXPECT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(gathered, wanted) << "rank " << own;
  return std::move(*made);
}

TEST_P(SplitTest, GroupsOfAnyRanksInAnyOrder) {
  const SplitStop stop;
  with_nodes({.ranks = GetParam()}, [&stop](Communicator& ranks) {
    const uint32_t rank = ranks.rank();
    const std::vector<int32_t> even = {0, 2}, odd = {1, 3}, mixed = {2, 0, 3};
    const auto parity = check_split(ranks, stop, rank % 2, 0, rank % 2 == 0 ? even : odd);
    const auto reversed = check_split(ranks, stop, 5, 10 - rank, {3, 2, 1, 0});
    const uint32_t key = rank == 2 ? 1 : 2;
    const auto some = check_split(ranks, stop, rank == 1 ? kNoColor : 9, key,
                                  rank == 1 ? std::vector<int32_t>() : mixed);
    const auto alone =
        check_split(*reversed, stop, rank, 0, {static_cast<int32_t>(reversed->rank())});
    // All of them work beside each other.
    for (uint64_t test = 1; test < 4; test++) {
      for (Communicator* const one :
           {&ranks, parity.get(), reversed.get(), some.get(), alone.get()}) {
        if (one == nullptr) continue;
        check_one(*one, {.kind = Collective::allreduce, .type = DataType::f32, .count = 1001}, test,
                  Memory::own, Values::small);
      }
    }
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
  });
}

TEST_P(SplitTest, AGroupOutlivesItsParent) {
  const SplitStop stop;
  std::vector<std::unique_ptr<Communicator>> groups(4);
  with_nodes({.ranks = GetParam()}, [&](Communicator& ranks) {
    auto made = ranks.split(1, ranks.rank(), stop.stop);
    ASSERT_TRUE(made.ok()) << made.error().message;
    groups[ranks.rank()] = std::move(*made);
  });
  std::vector<std::thread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&group] {
      ASSERT_NE(group, nullptr);
      check_one(*group, {.kind = Collective::allreduce, .type = DataType::f32, .count = 1001}, 1,
                Memory::own, Values::small);
    });
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  for (auto& group : groups) threads.emplace_back([&group] { group.reset(); });
  for (std::thread& thread : threads) thread.join();
}

TEST(SplitPlanTest, RanksThatDoNotFollowOneAnotherFormHostsOfTheirOwn) {
  World world;
  world.nodes = {{.first_rank = 0, .pids = {1, 2}}, {.first_rank = 2, .pids = {3, 4}}};
  world.nodes[1].address.host = "b";
  Network network{.ranks = 4};
  network.at.host = "a";
  const SplitParent parent{.self = {.ranks = 2, .job = "job"}, .network = network, .world = &world};
  // Group order: 2, 0, 3, 1. Each rank is a node of its own.
  const std::vector<SplitChoice> choices = {{.color = 1, .key = 2, .port = 100},
                                            {.color = 1, .key = 4, .port = 101},
                                            {.color = 1, .key = 1, .port = 102},
                                            {.color = 1, .key = 3, .port = 103}};
  const SplitGroup group = plan_split(parent, choices, 1);
  EXPECT_EQ(group.self.first_rank, 3u);
  EXPECT_EQ(group.self.ranks, 1u);
  ASSERT_TRUE(group.network.has_value());
  EXPECT_EQ(group.network->ranks, 4u);
  EXPECT_EQ(group.network->at.host, "b");
  EXPECT_EQ(group.network->at.port, 102);
  EXPECT_NE(group.self.job, plan_split(parent, choices, 0).self.job);
}

}  // namespace
}  // namespace ff::collective

// Ranks of several nodes that die or stop: all others, on all nodes, are told who it was, within
// the deadline.
#include "training/collective/lost_node.h"

namespace ff::collective {
namespace {

// Rank 0 of each node speaks for it.
const std::vector<uint32_t> kShape = {2, 1, 2};
constexpr uint32_t kLostNodeRanks = 5;

class LostNodeTest : public testing::TestWithParam<uint32_t> {};

TEST_P(LostNodeTest, OneThatIsKilledIsNamed) {
  for (int round = 0; round < 4; round++) {
    lose_rank({.ranks = kShape}, GetParam(), SIGKILL, Errc::unreachable);
  }
}

TEST_P(LostNodeTest, OneThatStandsStillIsNamedAtTheDeadline) {
  const Options options{.operation_ns = 3 * kSecond};
  lose_rank({.ranks = kShape, .options = options}, GetParam(), SIGSTOP, Errc::deadline);
}

INSTANTIATE_TEST_SUITE_P(Of, LostNodeTest, testing::Range(0U, kLostNodeRanks));

TEST(TwoJobsTest, TheyDoNotMeet) {
  std::vector<std::thread> jobs;
  for (const uint32_t ranks : {1U, 2U}) {
    jobs.emplace_back([ranks] {
      with_nodes({.ranks = {ranks, ranks}}, [ranks](Communicator& joined) {
        int32_t sum = 1;
        for (int round = 0; round < 20; round++) {
          ASSERT_TRUE(
              joined.run({.type = simd::DataType::i32, .count = 1, .in = &sum, .out = &sum}).ok());
          ASSERT_EQ(sum, static_cast<int32_t>(2 * ranks));
          sum = 1;
        }
      });
    });
  }
  for (std::thread& job : jobs) job.join();
}

}  // namespace
}  // namespace ff::collective

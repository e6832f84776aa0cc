// Ranks of several nodes that die or hang: every other rank on every node fails within the
// deadline, and the error names the rank.
#include "training/collective/failed_rank.h"

namespace ff::collective {
namespace {

// Rank 0 of each node exchanges data with the others.
const std::vector<uint32_t> kShape = {2, 1, 2};
constexpr uint32_t kFailedNodeRanks = 5;

class FailedNodeTest : public testing::TestWithParam<uint32_t> {};

TEST_P(FailedNodeTest, AKilledRankIsNamed) {
  for (int round = 0; round < 4; round++) {
    fail_rank({.ranks = kShape}, GetParam(), SIGKILL, Errc::unreachable);
  }
}

TEST_P(FailedNodeTest, AStoppedRankIsNamedAtTheDeadline) {
  const CommunicatorOptions options{.operation_ns = 3 * kSecond};
  fail_rank({.ranks = kShape, .options = options}, GetParam(), SIGSTOP, Errc::deadline);
}

INSTANTIATE_TEST_SUITE_P(Of, FailedNodeTest, testing::Range(0U, kFailedNodeRanks));

TEST(TwoJobsTest, RanksOfDifferentJobsDoNotMix) {
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

// Ranks of several nodes that die or stop: all others, on all nodes, are told who it was, within
// the deadline.
#include <csignal>
#include <cstdio>

#include "reduce/nodes.h"

namespace ff::reduce {
namespace {

constexpr int kToldRight = 7;
// Rank 0 of each node speaks for it.
const std::vector<uint32_t> kShape = {2, 1, 2};
constexpr uint32_t kRanks = 5;

// Runs operations until one fails; kToldRight: with this code, and a message that names `who`.
int until_told(Communicator& ranks, Errc code, uint32_t who) {
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  for (;;) {
    const auto run = ranks.run({.count = 1 << 20, .in = memory.data(), .out = memory.data()});
    if (run) continue;
    const bool right = run.error().code == code &&
                       contains(run.error().message, fmt::format("rank {} (process", who));
    if (!right) std::fprintf(stderr, "rank %u: %s\n", ranks.rank(), run.error().message.c_str());
    return right ? kToldRight : 1;
  }
}

// Runs some operations, then gets the signal while one is under way.
int until_signalled(Communicator& ranks, uint64_t seed, int signal) {
  SeededRng rng(seed);
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  const Operation operation{.count = 1 << 20, .in = memory.data(), .out = memory.data()};
  for (uint64_t left = rng.below(20); left > 0; left--) {
    if (!ranks.run(operation)) return 1;
  }
  if (rng.below(2) == 0 && !ranks.start(operation)) return 1;
  (void)::kill(::getpid(), signal);
  return 2;  // it was let go on
}

class LostNodeTest : public testing::TestWithParam<uint32_t> {
 protected:
  void lose(int signal, Errc code) {
    const uint32_t victim = GetParam();
    const int64_t deadline_ns = signal == SIGSTOP ? 3 * kSecond : 60 * kSecond;
    const Nodes nodes{.ranks = kShape, .options = {.operation_ns = deadline_ns}};
    const uint64_t seed = system_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<pid_t> pids;
    for (uint32_t node = 0; node < kShape.size(); node++) {
      for (uint32_t local = 0; local < kShape[node]; local++) {
        const auto body = [&](Communicator& ranks) {
          if (ranks.rank() == victim) return until_signalled(ranks, seed, signal);
          return until_told(ranks, code, victim);
        };
        pids.push_back(
            fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
      }
    }
    for (uint32_t rank = 0; rank < kRanks; rank++) {
      if (rank == victim) continue;
      EXPECT_EQ(exit_of(pids[rank]), kToldRight) << "rank " << rank;
    }
    (void)::kill(pids[victim], SIGKILL);
    EXPECT_EQ(exit_of(pids[victim]), 128 + SIGKILL);
  }
};

TEST_P(LostNodeTest, OneThatIsKilledIsNamed) {
  for (int round = 0; round < 4; round++) lose(SIGKILL, Errc::unreachable);
}

TEST_P(LostNodeTest, OneThatStandsStillIsNamedAtTheDeadline) { lose(SIGSTOP, Errc::deadline); }

INSTANTIATE_TEST_SUITE_P(Of, LostNodeTest, testing::Range(0U, kRanks));

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
}  // namespace ff::reduce

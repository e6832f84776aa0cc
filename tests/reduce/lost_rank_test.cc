// Ranks that die, stop or never come: the others are told who it was, within the deadline.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "base/clock.h"
#include "reduce/ranks.h"

namespace ff::reduce {
namespace {

constexpr uint32_t kRanks = 4;
constexpr int kToldRight = 7;

// Runs operations until one fails; kToldRight: with this code, and a message that names `who`.
int until_told(Communicator& ranks, Errc code, uint32_t who) {
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  for (;;) {
    const auto run = ranks.run({.count = 1 << 20, .in = memory.data(), .out = memory.data()});
    if (run) continue;
    const std::string name = "rank " + std::to_string(who) + " (process";
    const bool right =
        run.error().code == code && run.error().message.find(name) != std::string::npos;
    if (!right) std::fprintf(stderr, "rank %u: %s\n", ranks.rank(), run.error().message.c_str());
    return right ? kToldRight : 1;
  }
}

// Runs some operations, then gets the signal while others work on the next, or before it has begun.
int until_signalled(Communicator& ranks, uint64_t seed, int signal) {
  SeededRng rng(seed);
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  const Operation operation{.count = 1 << 20, .in = memory.data(), .out = memory.data()};
  for (uint64_t left = rng.below(100); left > 0; left--) {
    if (!ranks.run(operation)) return 1;
  }
  if (rng.below(2) == 0 && !ranks.start(operation)) return 1;
  (void)::kill(::getpid(), signal);
  return 2;  // it was let go on
}

class LostRankTest : public testing::TestWithParam<uint32_t> {
 protected:
  // Starts all ranks, of which the victim gets the signal; looks at what the others say.
  void lose(int signal, Errc code) {
    const uint32_t victim = GetParam();
    const std::string job = new_job();
    const Options options{.operation_ns = signal == SIGSTOP ? 3 * kSecond : 60 * kSecond};
    const uint64_t seed = system_seed();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::vector<pid_t> pids;
    for (uint32_t rank = 0; rank < kRanks; rank++) {
      pids.push_back(
          fork_rank({.rank = rank, .ranks = kRanks, .job = job}, options, [&](Communicator& ranks) {
            if (ranks.rank() == victim) {
              return until_signalled(ranks, seed, signal);
            }
            return until_told(ranks, code, victim);
          }));
    }
    for (uint32_t rank = 0; rank < kRanks; rank++) {
      if (rank != victim) {
        EXPECT_EQ(exit_of(pids[rank]), kToldRight) << "rank " << rank;
      }
    }
    (void)::kill(pids[victim], SIGKILL);
    EXPECT_EQ(exit_of(pids[victim]), 128 + SIGKILL);
  }
};

TEST_P(LostRankTest, OneThatIsKilledIsNamed) {
  for (int round = 0; round < 10; round++) lose(SIGKILL, Errc::unreachable);
}

TEST_P(LostRankTest, OneThatStandsStillIsNamedAtTheDeadline) { lose(SIGSTOP, Errc::deadline); }

INSTANTIATE_TEST_SUITE_P(Of, LostRankTest, testing::Range(0U, kRanks));

TEST(LeavingTest, OneThatHasLeftIsNamed) {
  with_ranks(3, [](Communicator& ranks) {
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    if (ranks.rank() == 1) return;
    const auto run = ranks.run({.kind = Collective::barrier});
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.error().code, Errc::unreachable);
    EXPECT_NE(run.error().message.find("rank 1 (process"), std::string::npos);
    EXPECT_NE(run.error().message.find("left after 1 operations"), std::string::npos)
        << run.error().message;
  });
}

TEST(JoiningTest, ThoseThatHaveNotComeAreNamed) {
  SystemClock clock;
  const Stop stop(clock);
  const Options options{.join_ns = 100 * kMillisecond};
  const std::string job = new_job();
  const auto first = Communicator::join({.rank = 0, .ranks = 3, .job = job}, stop, options);
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, Errc::deadline);
  EXPECT_NE(first.error().message.find("1, 2"), std::string::npos) << first.error().message;
  const auto other = Communicator::join({.rank = 1, .ranks = 3, .job = job}, stop, options);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Errc::deadline) << other.error().message;
}

TEST(JoiningTest, RanksThatDoNotFitAreRefused) {
  SystemClock clock;
  const Stop stop(clock);
  const std::string job = new_job();
  std::thread first([&] {
    const auto joined = Communicator::join({.rank = 0, .ranks = 2, .job = job}, stop, {});
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Errc::usage) << joined.error().message;
    EXPECT_NE(joined.error().message.find("1 of 3"), std::string::npos) << joined.error().message;
  });
  const auto other = Communicator::join({.rank = 1, .ranks = 3, .job = job}, stop, {});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Errc::usage) << other.error().message;
  first.join();
  for (const HostRank& bad :
       {HostRank{.rank = 2, .ranks = 2, .job = job}, HostRank{.rank = 0, .ranks = 0, .job = job},
        HostRank{.rank = 0, .ranks = 1000, .job = job}}) {
    EXPECT_EQ(Communicator::join(bad, stop, {}).error().code, Errc::usage);
  }
}

TEST(JoiningTest, AStopIsHeard) {
  SystemClock clock;
  Stop stop(clock);
  stop.request();
  const auto joined = Communicator::join({.rank = 1, .ranks = 2, .job = new_job()}, stop, {});
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace ff::reduce

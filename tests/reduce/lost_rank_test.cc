// Ranks that die, stop or never come: the others are told who it was, within the deadline.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "reduce/lost_node.h"

namespace ff::reduce {
namespace {

constexpr uint32_t kRanks = 4;

class LostRankTest : public testing::TestWithParam<uint32_t> {
 protected:
  // Starts all ranks, of which the victim gets the signal; looks at what the others say.
  void lose(int signal, Errc code) {
    const Options options{.operation_ns = signal == SIGSTOP ? 3 * kSecond : 60 * kSecond};
    lose_rank({.ranks = {kRanks}, .options = options}, GetParam(), signal, code,
              {.count = 1 << 20, .most = 100});
  }
};

TEST_P(LostRankTest, OneThatIsKilledIsNamed) {
  for (int round = 0; round < 10; round++) lose(SIGKILL, Errc::unreachable);
}

TEST_P(LostRankTest, OneThatStandsStillIsNamedAtTheDeadline) { lose(SIGSTOP, Errc::deadline); }

INSTANTIATE_TEST_SUITE_P(Of, LostRankTest, testing::Range(0U, kRanks));

// From here on no descriptor is free, whatever others are closed.
void open_no_more_files() {
  rlimit limit = {};
  FF_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = 1;
  FF_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST(OpenFilesTest, ARankWithoutRoomForOneMoreSaysSoToAll) {
  for (const uint32_t victim : {0U, 1U, 2U}) {
    std::vector<pid_t> pids;
    const std::string job = new_job();
    for (uint32_t rank = 0; rank < 3; rank++) {
      const auto body = [&](Communicator& ranks) {
        float data[2] = {1, 2};
        if (!ranks.run({.count = 2, .in = data, .out = data})) return 1;
        if (rank == victim) open_no_more_files();
        Result<void> run = ranks.run({.kind = Collective::barrier});
        if (run && rank != victim && !ranks.allocate(8)) return 2;
        while (run) run = ranks.run({.count = 2, .in = data, .out = data});
        const std::string& said = run.error().message;
        const std::string who = fmt::format("rank {} (process", victim);
        if (said.find(who) != said.npos && said.find("ulimit -n") != said.npos) return 0;
        std::fprintf(stderr, "rank %u: %s\n", rank, said.c_str());
        return 3;
      };
      pids.push_back(fork_rank({.rank = rank, .ranks = 3, .job = job}, {}, body));
    }
    for (const pid_t pid : pids) EXPECT_EQ(exit_of(pid), 0);
  }
}

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

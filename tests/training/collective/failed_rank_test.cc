// Ranks that die, hang or never join: the other ranks fail within the deadline, and the error names
// the rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "platform/base/check.h"
#include "platform/base/clock.h"
#include "training/collective/failed_rank.h"
#include "training/collective/host_group.h"

namespace ff::collective {
namespace {

constexpr uint32_t kFailedRankRanks = 4;

class FailedRankTest : public testing::TestWithParam<uint32_t> {
 protected:
  // Starts all ranks, sends the victim the signal, and checks the errors of the others.
  void fail_one(int signal, Errc code) {
    const CommunicatorOptions options{.operation_ns =
                                          signal == SIGSTOP ? 3 * kSecond : 60 * kSecond};
    fail_rank({.ranks = {kFailedRankRanks}, .options = options}, GetParam(), signal, code,
              {.count = 1 << 20, .max_rounds = 100});
  }
};

TEST_P(FailedRankTest, AKilledRankIsNamed) {
  for (int round = 0; round < 10; round++) fail_one(SIGKILL, Errc::unreachable);
}

TEST_P(FailedRankTest, AStoppedRankIsNamedAtTheDeadline) { fail_one(SIGSTOP, Errc::deadline); }

INSTANTIATE_TEST_SUITE_P(Of, FailedRankTest, testing::Range(0U, kFailedRankRanks));

void limit_open_files(rlim_t most) {
  rlimit limit = {};
  FF_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = most;
  FF_CHECK(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TEST(OpenFilesTest, ARankAtItsLimitFailsTheJobWithTheReason) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UBSan opens pipes to inspect objects";
#endif
  for (const uint32_t victim : {0U, 1U, 2U}) {
    std::vector<pid_t> pids;
    const std::string job = new_job();
    for (uint32_t rank = 0; rank < 3; rank++) {
      const auto body = [&](Communicator& ranks) {
        float data[2] = {1, 2};
        if (!ranks.run({.count = 2, .in = data, .out = data})) return 1;
        if (rank == victim) limit_open_files(1);  // none is free, whatever others are closed
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

// Rank 0 forwards regions of rank 1 to a stopped rank; its user may not have so many descriptors in
// flight.
TEST(OpenFilesTest, DescriptorsInFlightBeyondTheLimitAreRetried) {
  constexpr uint32_t kRegions = 200;
  constexpr rlim_t kInFlight = 130;  // and for the open files of the test
  const std::string job = new_job();
  std::array<pid_t, 3> pids = {};
  const auto act = [&](uint32_t rank, HostGroup& group) {
    OperationTable& operations = group.operations();
    SystemClock clock;
    const auto waits = [&](const std::function<bool()>& until) {
      return operations.wait(OperationTable::Futex::done, clock, clock.steady_ns() + 60 * kSecond,
                             until);
    };
    if (rank != 0) FF_CHECK(::raise(SIGSTOP) == 0);
    if (rank == 0) limit_open_files(kInFlight);
    for (uint32_t id = 1; id <= kRegions; id++) {
      if (rank == 1) FF_CHECK(group.make_region(8).value()->id() == id);
      const auto reached = group.resolve(1, {.region = id}, 8);
      if (!reached) {
        std::fprintf(stderr, "rank %u: %s\n", rank, reached.error().message.c_str());
        return 1;
      }
      if (rank == 0) {  // for the next one
        operations.request_straggler_check(id);
        operations.wake(OperationTable::Futex::done);
      }
      if (rank == 1 && !waits([&] { return operations.straggler_check() == id; })) return 2;
    }
    if (rank == 0) ::kill(pids[2], SIGCONT);
    if (rank == 2) operations.set_world_table({}, 1);  // the other ranks may exit
    return waits([&] { return operations.world_table().has_value(); }) ? 0 : 3;
  };
  for (const uint32_t rank : {2U, 1U, 0U}) {
    pids[rank] = ::fork();
    if (pids[rank] != 0) continue;
    if (::geteuid() == 0) FF_CHECK(::setresuid(65534, 65534, 65534) == 0);
    SystemClock clock;
    const StopToken stop(clock);
    auto group = HostGroup::join({.rank = rank, .ranks = 3, .job = job}, stop, 60 * kSecond);
    const int code = group ? act(rank, **group) : 99;
    if (group) group->reset();
    ::_exit(code);
  }
  int status = 0;
  for (const uint32_t rank : {2U, 1U}) {
    EXPECT_EQ(::waitpid(pids[rank], &status, WUNTRACED), pids[rank]);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  ::kill(pids[1], SIGCONT);
  for (const pid_t pid : pids) EXPECT_EQ(exit_of(pid), 0);
}

TEST(LeavingTest, ARankThatHasLeftIsNamed) {
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

TEST(JoiningTest, MissingRanksAreNamed) {
  SystemClock clock;
  const StopToken stop(clock);
  const CommunicatorOptions options{.join_ns = 100 * kMillisecond};
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
  const StopToken stop(clock);
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

TEST(JoiningTest, AStopInterruptsIt) {
  SystemClock clock;
  StopToken stop(clock);
  stop.request();
  const auto joined = Communicator::join({.rank = 1, .ranks = 2, .job = new_job()}, stop, {});
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Errc::interrupted);
}

}  // namespace
}  // namespace ff::collective

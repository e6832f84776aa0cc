// Collective operations between ranks of a host: results of all types and sizes, many in flight,
// and the errors of ranks that disagree.
#include "training/collective/communicator.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "platform/base/bytes.h"
#include "training/collective/checks.h"
#include "training/collective/piece.h"
#include "training/collective/ranks.h"

namespace ff::collective {
namespace {

TEST(CommunicatorTest, EveryTypeAndOperation) {
  with_ranks(4, [](Communicator& ranks) {
    uint64_t test = 1;
    for (size_t type = 0; type < simd::kDataTypes; type++) {
      for (size_t op = 0; op < simd::kReduceOps; op++) {
        for (const uint64_t count : {0, 1, 77, 4096}) {
          check_one(ranks,
                    {.kind = Collective::allreduce,
                     .type = static_cast<DataType>(type),
                     .op = static_cast<ReduceOp>(op),
                     .count = count},
                    test, static_cast<Memory>(test % 3));
          test++;
        }
      }
    }
  });
}

TEST(CommunicatorTest, EveryKindNumberOfRanksAndSize) {
  for (const uint32_t count : {1U, 2U, 3U, 5U, 8U, 16U}) {
    with_ranks(count, [count](Communicator& ranks) {
      uint64_t test = 1;
      for (const Collective kind : kKinds) {
        for (const uint64_t elements :
             {uint64_t{0}, uint64_t{1}, uint64_t{1001}, kPieceBytes / 2 - 1, kPieceBytes / 2 + 1}) {
          check_one(ranks,
                    {.kind = kind,
                     .type = DataType::bf16,
                     .root = static_cast<uint32_t>(test % count),
                     .count = elements},
                    test, test % 2 == 0 ? Memory::shared : Memory::own);
          test++;
        }
      }
    });
  }
}

TEST(CommunicatorTest, LargeArraysPastTheCaches) {
  with_ranks(3, [](Communicator& ranks) {
    for (const auto memory : {Memory::shared, Memory::own, Memory::in_place}) {
      check_one(ranks, {.kind = Collective::allreduce, .type = DataType::f32, .count = 2'500'003},
                5, memory);
    }
  });
}

TEST(CommunicatorTest, ManyInFlightCompleteInAnyOrder) {
  std::atomic<int> full = 0;  // ranks that can start no more
  with_ranks(4, [&full](Communicator& ranks) {
    constexpr uint64_t kCount = 10'000;
    std::vector<std::vector<int32_t>> in(kInflightMax), out(kInflightMax);
    SeededRng rng(ranks.rank());
    for (int round = 0; round < 5; round++) {
      std::vector<uint64_t> numbers;
      const bool is_last = ranks.rank() == 3;
      for (int seen = full; is_last && seen < 3 * (round + 1); seen = full) full.wait(seen);
      for (uint32_t i = 0; i < kInflightMax; i++) {
        in[i].assign(kCount, static_cast<int32_t>(i * 10 + ranks.rank()));
        out[i].assign(kCount, 0);
        numbers.push_back(ranks
                              .start({.type = DataType::i32,
                                      .count = kCount,
                                      .in = in[i].data(),
                                      .out = out[i].data()})
                              .value());
      }
      if (!is_last) {
        const auto more = ranks.start({.kind = Collective::barrier});
        ASSERT_FALSE(more.ok());
        EXPECT_EQ(more.error().code, Errc::busy);
        full++;
        full.notify_all();
      }
      for (size_t i = numbers.size(); i > 1; i--) std::swap(numbers[i - 1], numbers[rng.below(i)]);
      for (const uint64_t number : numbers) ASSERT_TRUE(ranks.wait(number).ok());
      for (uint32_t i = 0; i < kInflightMax; i++) {
        EXPECT_EQ(out[i], std::vector<int32_t>(kCount, static_cast<int32_t>(i * 40 + 6)));
      }
      EXPECT_EQ(ranks.wait(numbers[0]).error().code, Errc::usage) << "waited for twice";
    }
  });
}

TEST(CommunicatorTest, AnOperationWithoutAWaitFinishesToo) {
  with_ranks(3, [](Communicator& ranks) {
    constexpr size_t kOperations = 5 * kInflightMax;
    std::vector<std::vector<int32_t>> in(kOperations), out(kOperations);
    for (size_t i = 0; i < kOperations; i++) {
      in[i].assign(100, static_cast<int32_t>(i));
      out[i].assign(100, 0);
      const auto number = ranks.start(
          {.type = DataType::i32, .count = 100, .in = in[i].data(), .out = out[i].data()});
      ASSERT_TRUE(number.ok()) << number.error().message;
      if (i % 8 == 7) {  // so that those before have finished
        ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
      }
    }
    for (size_t i = 0; i + kInflightMax < kOperations; i++) {
      EXPECT_EQ(out[i], std::vector<int32_t>(100, static_cast<int32_t>(3 * i)));
    }
    EXPECT_TRUE(ranks.wait(0).ok()) << "its result is there";
  });
}

TEST(CommunicatorTest, TheErrorOfAnOperationWithoutAWaitIsKept) {
  with_ranks(2, [](Communicator& ranks) {
    std::vector<float> data(100);
    const uint64_t count = 100 - ranks.rank();
    const auto first = ranks.start({.count = count, .in = data.data(), .out = data.data()});
    ASSERT_TRUE(first.ok());
    for (uint32_t i = 0; i < 2 * kInflightMax; i++) {
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    }
    const auto waited = ranks.wait(*first);
    ASSERT_FALSE(waited.ok());
    EXPECT_NE(waited.error().message.find("allreduce of 99 float"), std::string::npos)
        << waited.error().message;
  });
}

TEST(CommunicatorTest, AMismatchFailsOnAllRanks) {
  with_ranks(3, [](Communicator& ranks) {
    std::vector<float> data(100);
    Operation operation{.count = 100, .in = data.data(), .out = data.data()};
    if (ranks.rank() == 2) operation.count = 99;
    const auto counts = ranks.run(operation);
    ASSERT_FALSE(counts.ok());
    EXPECT_EQ(counts.error().code, Errc::usage);
    EXPECT_NE(counts.error().message.find("allreduce of 100 float, sum"), std::string::npos);
    EXPECT_NE(counts.error().message.find("rank 2"), std::string::npos);
    EXPECT_NE(counts.error().message.find("99"), std::string::npos) << counts.error().message;
    operation.count = 50;
    if (ranks.rank() == 1) operation.type = DataType::bf16;
    EXPECT_FALSE(ranks.run(operation).ok());
    operation.type = DataType::f32;
    EXPECT_TRUE(ranks.run(operation).ok()) << "after that it goes on";
  });
}

// The other ranks are ahead by kInflightMax operations.
TEST(CommunicatorTest, ALateWaitReturnsTheSameMismatch) {
  std::atomic<int> ahead = 0;
  with_ranks(3, [&](Communicator& ranks) {
    std::vector<float> data(100);
    const bool is_odd = ranks.rank() == 2;
    Operation operation{.count = is_odd ? 99u : 100u, .in = data.data(), .out = data.data()};
    const uint64_t first = ranks.start(operation).value();
    for (int seen = ahead; is_odd && seen < 2; seen = ahead) ahead.wait(seen);
    const auto result = ranks.wait(first);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("allreduce of 100 float, sum"), std::string::npos)
        << result.error().message;
    EXPECT_NE(result.error().message.find("allreduce of 99 float, sum"), std::string::npos)
        << result.error().message;
    operation.count = 7;
    std::vector<uint64_t> numbers;
    for (uint32_t i = 0; i < kInflightMax; i++) numbers.push_back(ranks.start(operation).value());
    ahead++;
    ahead.notify_all();
    for (const uint64_t number : numbers) EXPECT_TRUE(ranks.wait(number).ok());
  });
}

TEST(CommunicatorTest, InvalidOperationsAreRefused) {
  with_ranks(2, [](Communicator& ranks) {
    std::vector<float> data(4);
    Operation operation{.kind = Collective::reduce, .root = 2, .count = 4, .in = data.data()};
    EXPECT_EQ(ranks.start(operation).error().code, Errc::usage);
    operation.root = 0;
    operation.count = UINT64_MAX;
    EXPECT_EQ(ranks.start(operation).error().code, Errc::usage);
    EXPECT_EQ(ranks.wait(0).error().code, Errc::usage);
    operation.count = 4;
    operation.root = ranks.rank();
    EXPECT_EQ(ranks.start(operation).error().code, Errc::usage) << "its output is null";
    operation.in = nullptr;
    EXPECT_EQ(ranks.start(operation).error().code, Errc::usage);
    EXPECT_EQ(ranks.free(data.data()).error().code, Errc::usage);
    EXPECT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
  });
}

// The errors of ranks that cannot join; a rank without a time limit of its own waits for ever.
std::vector<Error> local_join_errors(const std::vector<HostRank>& ranks, int64_t limit_of_rank_0) {
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<Error> said(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); i++) {
    threads.emplace_back([&, i] {
      const int64_t limit = ranks[i].rank == 0 ? limit_of_rank_0 : kNoTimeLimit;
      const auto joined = Communicator::join(ranks[i], stop, {.join_ns = limit});
      ASSERT_FALSE(joined.ok());
      said[i] = joined.error();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(CommunicatorTest, TheTimeLimitOfRank0IsTheErrorOfAllRanks) {
  const std::string job = new_job();
  const auto said = local_join_errors(
      {{.rank = 0, .ranks = 4, .job = job}, {.rank = 2, .ranks = 4, .job = job}}, 2 * kSecond);
  for (const Error& one : said) {
    EXPECT_EQ(one.code, Errc::deadline) << one.message;
    EXPECT_NE(one.message.find("ranks 1, 3 of this host have not joined in time"),
              std::string::npos)
        << one.message;
  }
}

TEST(CommunicatorTest, ARankOfAnotherJobSizeIsTheErrorOfBothRanks) {
  const std::string job = new_job();
  const auto said = local_join_errors(
      {{.rank = 0, .ranks = 3, .job = job}, {.rank = 2, .ranks = 4, .job = job}}, kNoTimeLimit);
  for (const Error& one : said) {
    EXPECT_EQ(one.code, Errc::usage) << one.message;
    EXPECT_NE(one.message.find("a rank 2 of 4"), std::string::npos) << one.message;
  }
}

// Regions are no files in /dev/shm: a small one limits nothing, and no access raises SIGBUS.
TEST(CommunicatorTest, ASmallDevShmDoesNotMatter) {
  constexpr int kNotAllowed = 77;
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("none", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
    if (!mounted) ::_exit(kNotAllowed);
    with_ranks(2, [](Communicator& ranks) {
      for (const auto memory : {Memory::shared, Memory::own}) {
        check_one(ranks, {.kind = Collective::allreduce, .count = 300'003}, 3, memory,
                  Values::small);
      }
    });
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const int code = exit_of(pid);
  if (code == kNotAllowed) GTEST_SKIP() << "this user cannot mount";
  EXPECT_EQ(code, 0);
}

// As root, regions may stand on pages of 2 MiB.
TEST(CommunicatorTest, ManySmallRegionsTakeLittleMemory) {
  SystemClock clock;
  const StopToken stop(clock);
  auto group = HostGroup::join({.job = new_job()}, stop, kSecond);
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ((*group)->make_region(5000).value()->memory().size(), 8192u);
}

// A rank that stops after it posted an operation and before it shared its memory.
TEST(CommunicatorTest, WaitingForUnsharedMemoryTimesOut) {
  SystemClock clock;
  const StopToken stop(clock);
  const std::string job = new_job();
  std::array<std::unique_ptr<HostGroup>, 2> groups;
  std::vector<std::thread> joining;
  for (uint32_t rank = 0; rank < 2; rank++) {
    joining.emplace_back([&, rank] {
      auto group = HostGroup::join(
          {.rank = rank, .ranks = 2, .job = job, .operation_ns = kSecond / 10}, stop, 60 * kSecond);
      ASSERT_TRUE(group.ok()) << group.error().message;
      groups[rank] = *std::move(group);
    });
  }
  for (std::thread& one : joining) one.join();
  ASSERT_TRUE(groups[0] != nullptr && groups[1] != nullptr);
  const auto reached = groups[0]->resolve(1, {.offset = 0, .region = 999}, 8);
  ASSERT_FALSE(reached.ok());
  EXPECT_EQ(reached.error().code, Errc::deadline);
  EXPECT_NE(reached.error().message.find("rank 1 (process"), std::string::npos)
      << reached.error().message;
  for (const auto& group : groups) {
    const auto lost = group->operations().failed_rank();
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->rank, 1u);
    EXPECT_TRUE(lost->timed_out);
  }
}

// More messages than a socket buffer holds.
TEST(CommunicatorTest, RegionsMadeAtTheSameTimeAreKeptApart) {
  constexpr int32_t kRegions = 600;
  with_ranks(3, [](Communicator& ranks) {
    std::vector<int32_t*> made;
    for (int32_t i = 0; i < kRegions; i++) {
      made.push_back(reinterpret_cast<int32_t*>(ranks.allocate(sizeof i).value().data()));
      *made.back() = i;
    }
    for (int32_t i = 0; i < kRegions; i++) {
      ASSERT_TRUE(
          ranks.run({.type = DataType::i32, .count = 1, .in = made[i], .out = made[i]}).ok());
      ASSERT_EQ(*made[i], 3 * i);
    }
  });
}

TEST(CommunicatorTest, TwoJobsAtOnce) {
  std::thread other([] {
    with_ranks(3, [](Communicator& ranks) {
      for (uint64_t test = 1; test < 50; test++) {
        check_one(ranks,
                  {.kind = Collective::allreduce, .type = DataType::f16, .count = 3000 + test},
                  test, Memory::own);
      }
    });
  });
  with_ranks(2, [](Communicator& ranks) {
    for (uint64_t test = 1; test < 50; test++) {
      check_one(ranks, {.kind = Collective::allreduce, .type = DataType::f64, .count = 2000 + test},
                test, Memory::shared);
    }
  });
  other.join();
}

}  // namespace
}  // namespace ff::collective

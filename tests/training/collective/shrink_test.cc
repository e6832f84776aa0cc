// Communicators that go on without ranks that are lost: one or several, in the middle of an
// operation or of the agreement, leaders of hosts and their successors, whole hosts; and ranks that
// are only late.
#include <sys/mman.h>

#include "training/collective/checks.h"
#include "training/collective/failed_rank.h"

namespace ff::collective {
namespace {

constexpr int kLeftBehind = 8;
constexpr uint64_t kShrinkCount = 10'000;  // elements

struct ShrinkCase {
  std::vector<uint32_t> nodes;    // ranks of each
  std::vector<uint32_t> victims;  // killed at the same time
};

bool is_killed(const ShrinkCase& one, uint32_t rank) {
  return std::ranges::find(one.victims, rank) != one.victims.end();
}

// The ranks that can go on: all that are left, but of several hosts rank 0 of one must be left.
std::vector<int32_t> survivors_of(const ShrinkCase& one) {
  std::vector<int32_t> survivors;
  uint32_t first = 0;
  bool has_leader = one.nodes.size() == 1;
  for (const uint32_t ranks : one.nodes) {
    has_leader = has_leader || !is_killed(one, first);
    for (uint32_t rank = first; rank < first + ranks; rank++) {
      if (!is_killed(one, rank)) survivors.push_back(static_cast<int32_t>(rank));
    }
    first += ranks;
  }
  return has_leader ? survivors : std::vector<int32_t>();
}

// Then some wait for a quarter of operation_ns: for a successor, or for a leader.
bool waits_in_vain(const ShrinkCase& one) {
  if (survivors_of(one).empty()) return true;
  uint32_t first = 0;
  for (const uint32_t ranks : one.nodes) {
    bool all = ranks > 1;
    for (uint32_t rank = first; rank < first + ranks; rank++) all = all && is_killed(one, rank);
    if (all) return true;
    first += ranks;
  }
  return false;
}

CommunicatorOptions options_for(const ShrinkCase& one) {
  CommunicatorOptions options;
  if (waits_in_vain(one)) options.operation_ns = 8 * kSecond;
  return options;
}

// Whether the ranks, as they were numbered at first, form the communicator and reduce together:
// what is wrong, or nothing.
std::string problem_of(Communicator& ranks, int32_t first_rank,
                       const std::vector<int32_t>& wanted) {
  std::vector<int32_t> gathered(ranks.ranks());
  const auto run = ranks.run({.kind = Collective::allgather,
                              .type = DataType::i32,
                              .count = 1,
                              .in = &first_rank,
                              .out = gathered.data()});
  if (!run) return run.error().message;
  if (gathered != wanted) return fmt::format("ranks {} go on", fmt::join(gathered, ", "));
  check_one(ranks, {.kind = Collective::allreduce, .type = DataType::f32, .count = 1001}, 1,
            Memory::own, Values::small);
  return testing::Test::HasFailure() ? "a wrong sum" : "";
}

// Shrinks until the wanted ranks work together: one may be lost after it has joined.
int go_on(Communicator& ranks, const std::vector<int32_t>& wanted, float* result = nullptr) {
  SystemClock clock;
  const StopToken stop(clock);
  const auto first_rank = static_cast<int32_t>(ranks.rank());
  Communicator* current = &ranks;
  std::unique_ptr<Communicator> made;
  std::string problem;
  const int64_t until_ns = clock.steady_ns() + 30 * kSecond;
  while (clock.steady_ns() < until_ns) {
    auto shrunk = current->shrink(stop);
    if (!shrunk) {
      std::fprintf(stderr, "rank %d: %s\n", first_rank, shrunk.error().message.c_str());
      return shrunk.error().code == Errc::unreachable ? kLeftBehind : 3;
    }
    made = std::move(*shrunk);
    current = made.get();
    problem = problem_of(*made, first_rank, wanted);
    if (!problem.empty()) continue;
    if (result != nullptr) {
      const Bytes bits = random_bytes(made->rank(), kShrinkCount * sizeof(float));
      if (!made->run({.count = kShrinkCount, .in = bits.data(), .out = result})) return 4;
    }
    return kFailedAsExpected;
  }
  std::fprintf(stderr, "rank %d: %s\n", first_rank, problem.c_str());
  return 5;
}

int run_then_go_on(Communicator& ranks, const std::vector<int32_t>& wanted, float* result) {
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  while (ranks.run({.count = 1 << 18, .in = memory.data(), .out = memory.data()})) {
  }
  return go_on(ranks, wanted, result);
}

// Memory of all processes that this one forks.
float* shared_floats(uint64_t count) {
  void* const memory = ::mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  FF_CHECK(memory != MAP_FAILED);
  return static_cast<float*>(memory);
}

class ShrinkTest : public testing::TestWithParam<ShrinkCase> {};

TEST_P(ShrinkTest, TheOthersGoOnWithTheBitsOfANewJob) {
  const ShrinkCase& one = GetParam();
  const auto wanted = survivors_of(one);
  const Nodes nodes{
      .ranks = one.nodes, .pipeline = {.deterministic = true}, .options = options_for(one)};
  float* const results = shared_floats(nodes.total() * kShrinkCount);
  const uint64_t seed = system_seed();
  std::vector<pid_t> pids;
  std::vector<uint32_t> shape;  // of the job that goes on
  for (uint32_t node = 0; node < one.nodes.size(); node++) {
    uint32_t left = 0;
    for (uint32_t local = 0; local < one.nodes[node]; local++) {
      const auto rank = static_cast<uint32_t>(pids.size());
      const auto body = [&](Communicator& ranks) {
        if (is_killed(one, rank)) {
          (void)run_until_signal(ranks, seed, SIGKILL, {});
          return ::kill(::getpid(), SIGKILL);  // another victim was faster
        }
        return run_then_go_on(ranks, wanted, results + rank * kShrinkCount);
      };
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
      left += std::ranges::find(wanted, static_cast<int32_t>(rank)) != wanted.end() ? 1 : 0;
    }
    if (left > 0) shape.push_back(left);
  }
  for (uint32_t rank = 0; rank < pids.size(); rank++) {
    const bool goes_on = std::ranges::find(wanted, static_cast<int32_t>(rank)) != wanted.end();
    const int code = is_killed(one, rank) ? 128 + SIGKILL
                     : goes_on            ? kFailedAsExpected
                                          : kLeftBehind;
    EXPECT_EQ(exit_of(pids[rank]), code) << "rank " << rank << ", seed " << seed;
  }
  if (shape.empty()) return;
  with_nodes({.ranks = shape, .pipeline = nodes.pipeline}, [&](Communicator& ranks) {
    const Bytes bits = random_bytes(ranks.rank(), kShrinkCount * sizeof(float));
    std::vector<float> sum(kShrinkCount);
    ASSERT_TRUE(ranks.run({.count = kShrinkCount, .in = bits.data(), .out = sum.data()}).ok());
    const auto* const got = results + static_cast<uint64_t>(wanted[ranks.rank()]) * kShrinkCount;
    EXPECT_EQ(std::memcmp(got, sum.data(), kShrinkCount * sizeof(float)), 0);
  });
  ::munmap(results, nodes.total() * kShrinkCount * sizeof(float));
}

INSTANTIATE_TEST_SUITE_P(Without, ShrinkTest,
                         testing::Values(ShrinkCase{{4}, {3}}, ShrinkCase{{4}, {0}},
                                         ShrinkCase{{4}, {0, 2}}, ShrinkCase{{4}, {1, 2, 3}},
                                         ShrinkCase{{2, 1, 2}, {1}}, ShrinkCase{{2, 1, 2}, {2}},
                                         ShrinkCase{{2, 1, 2}, {3}}, ShrinkCase{{2, 1, 2}, {0}},
                                         ShrinkCase{{2, 1, 2}, {0, 1}},
                                         ShrinkCase{{2, 1, 2}, {3, 4}}, ShrinkCase{{2, 2}, {2, 3}},
                                         ShrinkCase{{1, 1, 1, 1}, {0, 2}}, ShrinkCase{{1, 2}, {1}},
                                         ShrinkCase{{3, 2}, {0}}, ShrinkCase{{3, 1}, {0, 1}},
                                         ShrinkCase{{2, 3, 2}, {0, 2, 3}},
                                         ShrinkCase{{2, 2}, {0, 2}}),
                         [](const testing::TestParamInfo<ShrinkCase>& one) {
                           return fmt::format("{}_of_{}", fmt::join(one.param.victims, "_"),
                                              fmt::join(one.param.nodes, "_"));
                         });

// A second rank is killed at any time after the first, while the others agree or join.
class ShrinkRaceTest : public testing::TestWithParam<ShrinkCase> {};

TEST_P(ShrinkRaceTest, ARankIsKilledWhileTheOthersShrink) {
  const ShrinkCase& one = GetParam();
  const auto wanted = survivors_of(one);
  SeededRng rng(system_seed());
  for (uint32_t round = 0; round < 6; round++) {
    const Nodes nodes{.ranks = one.nodes, .options = options_for(one)};
    const int64_t delay_ns = static_cast<int64_t>(rng.below(30 + round * 40)) * kMillisecond / 4;
    std::vector<pid_t> pids;
    for (uint32_t node = 0; node < one.nodes.size(); node++) {
      for (uint32_t local = 0; local < one.nodes[node]; local++) {
        const auto rank = static_cast<uint32_t>(pids.size());
        const auto body = [&](Communicator& ranks) {
          if (rank == one.victims[0]) return run_until_signal(ranks, round, SIGKILL, {});
          std::thread killer;
          if (rank == one.victims[1]) {
            const ByteSpan memory = ranks.allocate(4 << 20).value();
            while (ranks.run({.count = 1 << 18, .in = memory.data(), .out = memory.data()})) {
            }
            killer = std::thread([delay_ns] {
              SystemClock clock;
              clock.sleep_ns(delay_ns);
              (void)::kill(::getpid(), SIGKILL);
            });
            (void)go_on(ranks, {});  // never the ranks that are wanted
            killer.join();
          }
          return run_then_go_on(ranks, wanted, nullptr);
        };
        pids.push_back(
            fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
      }
    }
    for (uint32_t rank = 0; rank < pids.size(); rank++) {
      const int code = is_killed(one, rank) ? 128 + SIGKILL : kFailedAsExpected;
      EXPECT_EQ(exit_of(pids[rank]), code) << "rank " << rank << ", after " << delay_ns << " ns";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ShrinkRaceTest,
                         testing::Values(ShrinkCase{{4}, {1, 0}}, ShrinkCase{{4}, {0, 3}},
                                         ShrinkCase{{1, 2, 1}, {3, 0}},
                                         ShrinkCase{{1, 2, 1}, {0, 2}}, ShrinkCase{{2, 2}, {1, 2}},
                                         // A leader, then its successor, or whom that reports to.
                                         ShrinkCase{{1, 3}, {1, 2}}, ShrinkCase{{1, 2, 1}, {1, 0}}),
                         [](const testing::TestParamInfo<ShrinkCase>& one) {
                           return fmt::format("{}_of_{}", fmt::join(one.param.victims, "_"),
                                              fmt::join(one.param.nodes, "_"));
                         });

class LateRankTest : public testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(LateRankTest, AStoppedRankIsLeftBehindAndLearnsIt) {
  const Nodes nodes{.ranks = GetParam(), .options = {.operation_ns = 3 * kSecond}};
  const uint32_t last = nodes.total() - 1;
  std::vector<pid_t> pids;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      const auto rank = static_cast<uint32_t>(pids.size());
      const auto body = [&](Communicator& ranks) {
        Result<void> run = ranks.run({.kind = Collective::barrier});
        if (rank == last) (void)::kill(::getpid(), SIGSTOP);
        while (run) run = ranks.run({.kind = Collective::barrier});
        if (run.error().code != Errc::deadline) return 2;
        if (rank != last) return go_on(ranks, {0, 1});
        SystemClock clock;
        const StopToken stop(clock);
        const auto made = ranks.shrink(stop);
        if (made || made.error().code != Errc::deadline) return 6;
        return contains(made.error().message, fmt::format("go on without rank {}", last)) ? 9 : 10;
      };
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
    }
  }
  for (uint32_t rank = 0; rank < last; rank++) EXPECT_EQ(exit_of(pids[rank]), kFailedAsExpected);
  (void)::kill(pids[last], SIGCONT);
  EXPECT_EQ(exit_of(pids[last]), 9);
}

INSTANTIATE_TEST_SUITE_P(Of, LateRankTest,
                         testing::Values(std::vector<uint32_t>{3}, std::vector<uint32_t>{1, 2},
                                         std::vector<uint32_t>{1, 1, 1}),
                         [](const testing::TestParamInfo<std::vector<uint32_t>>& nodes) {
                           return fmt::format("{}", fmt::join(nodes.param, "_"));
                         });

// A rank that is still joining fails if another one shrinks the communicator already.
void wait_until_joined(Communicator& ranks) { (void)ranks.run({.kind = Collective::barrier}); }

TEST(ShrinkVoteTest, ARankThatLeavesInsteadIsNotWaitedFor) {
  SystemClock clock;
  const StopToken stop(clock);
  with_ranks(3, [&stop](Communicator& ranks) {
    if (ranks.rank() == 1) {
      Result<void> run;
      while (run) run = ranks.run({.kind = Collective::barrier});
      EXPECT_TRUE(contains(run.error().message, "shrinks the communicator")) << run.error().message;
      return;
    }
    wait_until_joined(ranks);
    const auto made = ranks.shrink(stop);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(problem_of(**made, static_cast<int32_t>(ranks.rank()), {0, 2}), "");
  });
}

TEST(ShrinkVoteTest, WithoutAFailureAllGoOn) {
  SystemClock clock;
  const StopToken stop(clock);
  with_nodes({.ranks = {2, 1}}, [&stop](Communicator& ranks) {
    const auto rank = static_cast<int32_t>(ranks.rank());
    wait_until_joined(ranks);
    auto made = ranks.shrink(stop);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto again = (*made)->shrink(stop);
    ASSERT_TRUE(again.ok()) << again.error().message;
    made->reset();
    EXPECT_EQ(problem_of(**again, rank, {0, 1, 2}), "");
  });
}

}  // namespace
}  // namespace ff::collective

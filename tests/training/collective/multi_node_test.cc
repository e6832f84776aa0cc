// Operations between nodes: results of all kinds, types and sizes on trees and rings; determinism;
// the errors of ranks that disagree or are missing.
#include "training/collective/multi_node.h"

#include <atomic>
#include <cmath>
#include <set>

#include "platform/base/system_loop.h"
#include "platform/base/text.h"
#include "platform/net/system_transport.h"
#include "training/collective/checks.h"
#include "training/collective/peer_handshake.h"
#include "training/collective/pipeline.h"

namespace ff::collective {
namespace {

struct NodesCase {
  std::vector<uint32_t> ranks;
  Algorithm algorithm = Algorithm::automatic;
};
std::vector<NodesCase> cases() {
  return {{{2, 2}, Algorithm::tree},
          {{1, 1}, Algorithm::ring},
          {{1, 3, 2}, Algorithm::tree},
          {{1, 2, 1}, Algorithm::ring},
          {{1, 1, 1, 1, 1}, Algorithm::tree}};
}
std::string name_of(const testing::TestParamInfo<NodesCase>& info) {
  return fmt::format("{}_{}", algorithm_name(info.param.algorithm),
                     fmt::join(info.param.ranks, "_"));
}

class NodesTest : public testing::TestWithParam<NodesCase> {
 protected:
  Nodes nodes() const {
    return {.ranks = GetParam().ranks, .pipeline = {.algorithm = GetParam().algorithm}};
  }
};

TEST_P(NodesTest, EveryTypeAndOperation) {
  with_nodes(nodes(), [](Communicator& ranks) {
    uint64_t test = 1;
    for (size_t type = 0; type < simd::kDataTypes; type++) {
      for (size_t op = 0; op < simd::kReduceOps; op++) {
        for (const uint64_t count : {0, 77, 4097}) {
          check_one(ranks,
                    {.kind = Collective::allreduce,
                     .type = static_cast<DataType>(type),
                     .op = static_cast<ReduceOp>(op),
                     .count = count},
                    test, static_cast<Memory>(test % 3), Values::small);
          test++;
        }
      }
    }
  });
}

TEST_P(NodesTest, EveryKindRootAndSize) {
  with_nodes(nodes(), [](Communicator& ranks) {
    uint64_t test = 1;
    for (const Collective kind : kKinds) {
      for (uint32_t root = 0; root < ranks.ranks(); root++) {
        for (const uint64_t count :
             {uint64_t{0}, uint64_t{1}, uint64_t{1001}, kSlotBytes / 4 + 1}) {
          check_one(ranks, {.kind = kind, .type = DataType::bf16, .root = root, .count = count},
                    test, test % 2 == 0 ? Memory::shared : Memory::own, Values::small);
          test++;
        }
      }
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    }
  });
}

TEST_P(NodesTest, MorePiecesThanSlots) {
  with_nodes(nodes(), [](Communicator& ranks) {
    const uint64_t count = 5 * kInflightPiecesMax * kSlotBytes / 16 + 3;
    check_one(ranks, {.kind = Collective::allreduce, .count = count}, 1, Memory::in_place,
              Values::small);
    check_one(ranks,
              {.kind = Collective::reduce_scatter, .type = DataType::i32, .count = count / 3}, 2,
              Memory::own, Values::small);
  });
}

TEST_P(NodesTest, ManyInFlightOfAllKinds) {
  with_nodes(nodes(), [](Communicator& ranks) { check_in_flight(ranks, kInflightMax, 40'000); });
}

INSTANTIATE_TEST_SUITE_P(Cases, NodesTest, testing::ValuesIn(cases()), name_of);

TEST(ZonesTest, ResultsAreTheSame) {
  const std::vector<std::vector<std::string>> cases = {{"east", "east", "west", "west", "west"},
                                                       {"east", "west", "east", "west", "north"}};
  for (const auto& zones : cases) {
    with_nodes({.ranks = {1, 2, 1, 1, 1}, .zones = zones}, [](Communicator& ranks) {
      uint64_t test = 1;
      for (const Collective kind : kKinds) {
        check_one(ranks, {.kind = kind, .root = 3, .count = 300'001}, test++, Memory::own,
                  Values::small);
      }
    });
  }
}

// With TLS, and without it once both ends have proven the key.
TEST(SecurityTest, ResultsAreTheSame) {
  for (const bool trusted : {false, true}) {
    with_nodes({.ranks = {1, 2, 1, 1}, .key = key_of(3), .trusted_network = trusted},
               [](Communicator& ranks) {
                 uint64_t test = 1;
                 for (const Collective kind : kKinds) {
                   check_one(ranks, {.kind = kind, .count = kSlotBytes / 2 + 5}, test++,
                             Memory::shared, Values::small);
                 }
               });
  }
}

TEST(SharedMemoryTest, NodesOfOneHostMayUseIt) {
  with_nodes({.ranks = {1, 2, 1}, .mode = net::NetMode::automatic}, [](Communicator& ranks) {
    check_one(ranks, {.kind = Collective::allreduce, .count = 1'000'001}, 1, Memory::shared,
              Values::small);
  });
}

// The output, which must be the same on all ranks.
class Collected {
 public:
  void add(const Bytes& bytes) {
    const std::lock_guard lock(mutex_);
    seen_.insert(bytes);
  }
  // The one result.
  Bytes only() const {
    EXPECT_EQ(seen_.size(), 1u);
    return seen_.empty() ? Bytes() : *seen_.begin();
  }

 private:
  std::mutex mutex_;
  std::set<Bytes> seen_;
};

std::vector<float> random_floats(uint64_t seed, uint64_t count) {
  SeededRng rng(seed);
  std::vector<float> floats(count);
  for (float& one : floats) {
    one = std::ldexp(static_cast<float>(rng.below(1 << 20)) - (1 << 19),
                     static_cast<int>(rng.below(20)) - 30);
  }
  return floats;
}

// The sum of the same floats, at one position of an array of `count`.
Bytes sum_at(const Nodes& nodes, uint64_t count, uint64_t at, uint64_t part) {
  Collected collected;
  with_nodes(nodes, [&](Communicator& ranks) {
    std::vector<float> in = random_floats(1000 + count + ranks.rank(), count);
    const auto same = random_floats(ranks.rank(), part);
    std::copy(same.begin(), same.end(), in.begin() + static_cast<ptrdiff_t>(at));
    ASSERT_TRUE(ranks.run({.count = count, .in = in.data(), .out = in.data()}).ok());
    Bytes out(part * sizeof(float));
    std::memcpy(out.data(), &in[at], out.size());
    collected.add(out);
  });
  return collected.only();
}

TEST(DeterministicTest, BitsDoNotDependOnSizeOrPosition) {
  constexpr uint64_t kPart = 3000;
  const Nodes nodes{.ranks = {1, 2, 1, 2, 1}, .pipeline = {.deterministic = true}};
  const auto again = [&] {
    Nodes other = nodes;
    other.job = new_job();
    other.port = free_port();
    return other;
  };
  const Bytes alone = sum_at(again(), kPart, 0, kPart);
  EXPECT_EQ(sum_at(again(), kPart + 5, 5, kPart), alone);
  EXPECT_EQ(sum_at(again(), 1'000'000, 524'288 / 4 + 17, kPart), alone);  // of the other tree
  EXPECT_EQ(sum_at(again(), 1'000'000, 1'000'000 - kPart, kPart), alone);
}

TEST(WireTest, AllRanksGetTheSameBitsNearTheSum) {
  struct Case {
    simd::WireType wire;
    double relative;  // of the largest magnitude near by
  };
  for (const Case& one : {Case{simd::WireType::bf16, 0.02}, Case{simd::WireType::fp8, 0.25}}) {
    for (const Algorithm algorithm : {Algorithm::tree, Algorithm::ring}) {
      Collected collected;
      constexpr uint64_t kCount = 300'003;
      const Nodes nodes{.ranks = {2, 1, 1}, .pipeline = {.algorithm = algorithm, .wire = one.wire}};
      with_nodes(nodes, [&](Communicator& ranks) {
        std::vector<float> in(kCount);
        SeededRng rng(ranks.rank());
        for (float& value : in) value = static_cast<float>(rng.below(2001)) / 1000 - 1;
        std::vector<float> out(kCount);
        ASSERT_TRUE(
            ranks.run({.op = ReduceOp::avg, .count = kCount, .in = in.data(), .out = out.data()})
                .ok());
        Bytes bytes(kCount * sizeof(float));
        std::memcpy(bytes.data(), out.data(), bytes.size());
        collected.add(bytes);
      });
      const Bytes result = collected.only();
      std::vector<SeededRng> rngs;
      for (uint64_t rank = 0; rank < nodes.total(); rank++) rngs.emplace_back(rank);
      double worst = 0;
      for (uint64_t i = 0; i < kCount; i++) {
        double sum = 0;
        for (SeededRng& rng : rngs) sum += static_cast<double>(rng.below(2001)) / 1000 - 1;
        float got = 0;
        std::memcpy(&got, &result[i * sizeof(float)], sizeof got);
        worst = std::max(worst, std::abs(got - sum / nodes.total()));
      }
      EXPECT_LT(worst, one.relative) << simd::wire_type_name(one.wire);
      EXPECT_GT(worst, one.relative / 1000) << "nothing was rounded";
    }
  }
}

TEST(WireTest, IntegersAreNotRounded) {
  with_nodes({.ranks = {1, 1}, .pipeline = {.wire = simd::WireType::fp8}}, [](Communicator& ranks) {
    for (const DataType type : {DataType::i32, DataType::i64, DataType::u8, DataType::f64}) {
      check_one(ranks, {.kind = Collective::allreduce, .type = type, .count = 70'001}, 1,
                Memory::own, Values::small);
    }
    check_one(ranks, {.kind = Collective::allgather, .count = 70'001}, 2, Memory::own);
  });
}

// The error of all ranks when they start different operations contains these words.
void expect_mismatch(const Nodes& nodes, const std::function<Operation(uint32_t rank)>& operation,
                     const std::vector<std::string>& words) {
  with_nodes(nodes, [&](Communicator& ranks) {
    std::vector<float> memory(1 << 20);
    Operation one = operation(ranks.rank());
    one.in = one.out = memory.data();
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    const auto run = ranks.run(one);
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.error().code, Errc::usage) << run.error().message;
    for (const std::string& word : words) {
      EXPECT_NE(run.error().message.find(word), std::string::npos) << run.error().message;
    }
    EXPECT_FALSE(ranks.run({.kind = Collective::barrier}).ok());
  });
}

TEST(MismatchTest, TheErrorOfAllRanksNamesBothRequests) {
  const auto nodes = [] { return Nodes{.ranks = {2, 1, 2}}; };
  expect_mismatch(
      nodes(), [](uint32_t rank) { return Operation{.count = rank == 2 ? 101UL : 100UL}; },
      {"operation 1", "allreduce of 101 float", "allreduce of 100 float", "rank 2 (process"});
  expect_mismatch(nodes(),
                  [](uint32_t rank) {
                    return Operation{.type = rank < 3 ? DataType::f32 : DataType::bf16,
                                     .count = 70'000};
                  },
                  {"of 70000 float", "of 70000 bfloat16"});
  expect_mismatch(  // within a node
      nodes(), [](uint32_t rank) { return Operation{.count = rank == 4 ? 7UL : 8UL}; },
      {"rank 3 (process", "rank 4 (process", "of 7 float"});
  expect_mismatch(  // both only wait
      nodes(),
      [](uint32_t rank) {
        return Operation{.kind = Collective::broadcast, .root = rank < 2 ? 4U : 0U, .count = 10};
      },
      {"root 4", "root 0"});
}

// The errors of ranks that cannot join.
std::vector<std::string> join_errors(const Nodes& nodes,
                                     const std::function<void(Network&, uint32_t)>& change) {
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::string> said(nodes.ranks.size());
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    threads.emplace_back([&, node] {
      Network network = nodes.network(node);
      change(network, node);
      const auto joined = Communicator::join(nodes.rank(node, 0), stop, nodes.options, network);
      said[node] =
          joined ? ""
                 : fmt::format("{}: {}", errc_name(joined.error().code), joined.error().message);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(RendezvousTest, AnotherKeyIsRefused) {
  const Nodes nodes{.ranks = {1, 1, 1}, .options = {.join_ns = 2 * kSecond}};
  const auto said = join_errors(
      nodes, [](Network& network, uint32_t node) { network.key = key_of(node == 2 ? 2 : 1); });
  EXPECT_TRUE(said[2].starts_with("refused") && contains(said[2], "do not hold the same job's key"))
      << said[2];
  EXPECT_TRUE(contains(said[0], "rank 2 has not joined"))
      << said[0];  // another key does not end the job
  const Nodes again{.ranks = {1, 1}, .options = {.join_ns = 2 * kSecond}};
  const auto keyless = join_errors(again, [](Network& network, uint32_t node) {
    if (node == 0) network.key = key_of(1);
  });
  EXPECT_TRUE(keyless[1].starts_with("refused")) << keyless[1];
}

TEST(RendezvousTest, OtherMachinesNeedAKey) {
  const Nodes nodes{.ranks = {1, 1}, .options = {.join_ns = kSecond}};
  const auto said =
      join_errors(nodes, [](Network& network, uint32_t) { network.at.host = "198.18.0.1"; });
  for (const std::string& one : said) EXPECT_TRUE(contains(one, "this job has no key")) << one;
}

TEST(RendezvousTest, RanksThatDoNotFitTogetherAreNamed) {
  const Nodes nodes{.ranks = {1, 1, 1}, .options = {.join_ns = 10 * kSecond}};
  const auto wires = join_errors(nodes, [](Network& network, uint32_t node) {
    if (node == 1) network.pipeline.wire = simd::WireType::bf16;
  });
  for (const std::string& one : wires) EXPECT_TRUE(contains(one, "--wire bf16")) << one;
  const Nodes numbers{.ranks = {1, 1}, .options = {.join_ns = 10 * kSecond}};
  const auto counts = join_errors(numbers, [](Network& network, uint32_t node) {
    if (node == 1) network.ranks = 5;
  });
  for (const std::string& one : counts) EXPECT_TRUE(contains(one, "of a job of 5 ranks")) << one;
}

TEST(RendezvousTest, MissingRanksAreNamed) {
  SystemClock clock;
  const StopToken stop(clock);
  const Nodes nodes{.ranks = {1, 2, 1, 1}, .options = {.join_ns = 300 * kMillisecond}};
  const auto first = Communicator::join(nodes.rank(0, 0), stop, nodes.options, nodes.network(0));
  ASSERT_FALSE(first.ok());
  EXPECT_EQ(first.error().code, Errc::deadline);
  EXPECT_EQ(first.error().message, "ranks 1 to 4 have not joined in time");
  const auto last = Communicator::join(nodes.rank(3, 0), stop, nodes.options, nodes.network(3));
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().code, Errc::deadline);
  EXPECT_TRUE(contains(last.error().message, "rank 0 has not joined in time: 127.0.0.1"))
      << last.error().message;
}

TEST(RendezvousTest, TheTimeLimitOfRank0IsTheErrorOfAllRanks) {
  Nodes nodes{.ranks = {1, 1, 1}, .options = {.join_ns = kNoTimeLimit}};
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::thread> threads;
  for (const uint32_t node : {0U, 1U}) {
    threads.emplace_back([&, node] {
      CommunicatorOptions options = nodes.options;
      if (node == 0) options.join_ns = kSecond;
      const auto joined =
          Communicator::join(nodes.rank(node, 0), stop, options, nodes.network(node));
      ASSERT_FALSE(joined.ok());
      EXPECT_EQ(joined.error().code, Errc::deadline) << joined.error().message;
      EXPECT_TRUE(contains(joined.error().message, "rank 2 has not joined in time"))
          << joined.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank 0 has another version of the messages between nodes.
TEST(RendezvousTest, AnotherVersionOfFfIsRefused) {
  SystemClock clock;
  SystemLoop loop(clock);
  net::SystemTransport transport(net::TransportOptions{.mode = net::NetMode::tcp});
  const Nodes nodes{.ranks = {1, 1}, .options = {.join_ns = 60 * kSecond}};
  const StopToken stop(clock);
  std::thread rank_0([&] {
    const auto joined = Communicator::join(nodes.rank(0, 0), stop, nodes.options, nodes.network(0));
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Errc::usage);
    EXPECT_TRUE(contains(joined.error().message,
                         "another version of ff: its protocol is "
                         "'ff reduce 2', that of rank 0 is 'ff reduce 4'"))
        << joined.error().message;
  });
  const auto old_peer = [&]() -> Task<Result<std::string>> {
    for (;;) {
      const auth::Service service{auth::Role::rank, {}};
      auto connected = co_await transport.connect(loop, nodes.network(1).at, service);
      if (!connected) {
        FF_CO_TRY(co_await sleep_for(loop, 5 * kMillisecond));
        continue;
      }
      send_step(**connected, HandshakeStep::node, "ff reduce 2|and more");
      co_return co_await receive_step(**connected, HandshakeStep::table);
    }
  };
  auto asking = old_peer();
  const auto table = run_task(loop, std::move(asking));
  rank_0.join();
  ASSERT_FALSE(table.ok());
  EXPECT_TRUE(contains(table.error().message, "another version of ff")) << table.error().message;
}

// Only rank 0 has a time limit; rank 2 starts the operation late.
void time_out_rank_0(const Nodes& nodes) {
  SystemClock clock;
  const StopToken stop(clock);
  std::atomic<int> failed = 0;
  const auto body = [&](Communicator& ranks) {
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    const bool is_late = ranks.rank() == 2;
    for (int seen = failed; is_late && seen < 2; seen = failed) failed.wait(seen);
    auto run = ranks.run({.kind = Collective::barrier});
    failed++;
    failed.notify_all();
    // It may complete when all have started it; the next one fails.
    if (is_late && run) run = ranks.run({.kind = Collective::barrier});
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.error().code, Errc::deadline) << run.error().message;
    EXPECT_TRUE(contains(run.error().message, "rank 2 (process")) << run.error().message;
    for (int seen = failed; seen < 3; seen = failed) failed.wait(seen);
  };
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      threads.emplace_back([&, node, local] {
        const bool is_first = node == 0 && local == 0;
        const CommunicatorOptions options{.operation_ns = is_first ? kSecond / 2 : kNoTimeLimit};
        auto joined =
            Communicator::join(nodes.rank(node, local), stop, options, nodes.network(node));
        ASSERT_TRUE(joined.ok()) << joined.error().message;
        body(**joined);
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TimeLimitTest, ThatOfRank0ReachesAllRanksAsADeadline) {
  time_out_rank_0({.ranks = {3}});
  time_out_rank_0({.ranks = {1, 1, 1}});
}

// Every rank closes its communicator at once and joins the next one of the same name and port.
void rejoin(const Nodes& nodes, int rounds) {
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      threads.emplace_back([&, node, local] {
        for (int round = 0; round < rounds; round++) {
          const auto joined =
              Communicator::join(nodes.rank(node, local), stop, nodes.options, nodes.network(node));
          ASSERT_TRUE(joined.ok()) << "round " << round << ": " << joined.error().message;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RejoinTest, ANewCommunicatorMeetsNoRankOfTheOldOne) {
  rejoin({.ranks = {3}}, 150);
  rejoin({.ranks = {2, 1, 1}}, 12);
}

TEST(LeavingNodesTest, ARankThatHasLeftIsNamed) {
  for (const uint32_t leaves : {0U, 2U, 3U}) {
    with_nodes({.ranks = {2, 2}}, [leaves](Communicator& ranks) {
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
      if (ranks.rank() == leaves) return;
      const auto run = ranks.run({.kind = Collective::barrier});
      ASSERT_FALSE(run.ok());
      EXPECT_EQ(run.error().code, Errc::unreachable);
      EXPECT_TRUE(contains(run.error().message, fmt::format("rank {} (process", leaves)) &&
                  contains(run.error().message, "has left after 1 operations"))
          << run.error().message;
    });
  }
}

}  // namespace
}  // namespace ff::collective

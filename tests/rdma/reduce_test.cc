// Collective operations between nodes over RDMA: the windows and buffers of collective/pipeline.h
// are memory that devices write to and read from. All nodes have the same device, each a context of
// its own.
#include "rdma/rxe_link.h"
#include "training/collective/checks.h"
#include "training/collective/failed_rank.h"

namespace ff::collective {
namespace {

constexpr int64_t kPacketBytes = 4096;  // at most, besides its headers

int64_t packets() { return net::rxe_counter("sent_pkts"); }

// Of the device since it was made.
class SentBytes {
 public:
  int64_t most() const { return (packets() - before_) * kPacketBytes; }

 private:
  const int64_t before_ = packets();
};

class ReduceVerbsTest : public testing::TestWithParam<Algorithm> {
 protected:
  void SetUp() override {
    if (packets() < 0) GTEST_SKIP() << "this machine has no RDMA device";
  }
  Nodes nodes() const {
    return {.ranks = {1, 2, 1},
            .pipeline = {.algorithm = GetParam()},
            .mode = net::NetMode::verbs,
            .host = "10.77.0.1",  // guests.sh gives it
            .key = key_of(1)};
  }
};

TEST_P(ReduceVerbsTest, EveryKindRootAndSize) {
  with_nodes(nodes(), [](Communicator& ranks) {
    uint64_t test = 1;
    for (const Collective kind : kKinds) {
      for (uint32_t root = 0; root < ranks.ranks(); root++) {
        for (const uint64_t count : {uint64_t{77}, kSlotBytes / 4 + 1}) {
          check_one(ranks, {.kind = kind, .type = DataType::bf16, .root = root, .count = count},
                    test, static_cast<Memory>(test % 2), Values::small);
          test++;
        }
      }
      ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    }
  });
}

TEST_P(ReduceVerbsTest, MorePiecesThanSlotsGoByRdma) {
  constexpr uint64_t kBytes = (kInflightPiecesMax + 2) * kSlotBytes;
  const SentBytes sent;
  with_nodes(nodes(), [](Communicator& ranks) {
    check_one(ranks, {.kind = Collective::allreduce, .count = kBytes / sizeof(float)}, 1,
              Memory::in_place, Values::small);
  });
  // Two nodes send their sums up, and two get the result.
  EXPECT_GE(sent.most(), static_cast<int64_t>(4 * kBytes));
}

TEST_P(ReduceVerbsTest, ManyInFlightOfAllKinds) {
  with_nodes(nodes(), [](Communicator& ranks) { check_in_flight(ranks, kInflightMax, 20'000); });
}

// Who has all that it asked for leaves at once, while others may still take what it has sent.
TEST_P(ReduceVerbsTest, ShortJobsOneAfterAnother) {
  for (uint32_t round = 0; round < kKinds.size(); round++) {
    with_nodes(nodes(), [&](Communicator& ranks) {
      check_one(
          ranks,
          {.kind = kKinds[round % kKinds.size()], .root = round % ranks.ranks(), .count = 200'000},
          round, Memory::own, Values::small);
    });
  }
}

TEST_P(ReduceVerbsTest, OneThatIsKilledIsNamed) {
  for (const uint32_t victim : {0U, 2U}) {  // of which the one speaks for its node
    const SentBytes sent;
    fail_rank(nodes(), victim, SIGKILL, Errc::unreachable);
    EXPECT_GT(sent.most(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ReduceVerbsTest, testing::Values(Algorithm::tree, Algorithm::ring),
                         [](const auto& way) { return std::string(algorithm_name(way.param)); });

TEST(ReduceVerbsKeyTest, OthersKeysAreRefused) {
  if (packets() < 0) GTEST_SKIP() << "this machine has no RDMA device";
  const Nodes nodes{.ranks = {1, 1},
                    .mode = net::NetMode::verbs,
                    .options = {.join_ns = 3 * kSecond},
                    .host = "10.77.0.1"};
  SystemClock clock;
  const StopToken stop(clock);
  std::vector<std::thread> threads;
  for (uint32_t node = 0; node < 2; node++) {
    threads.emplace_back([&, node] {
      Network network = nodes.network(node);
      network.key = key_of(static_cast<uint8_t>(node + 1));
      const auto joined = Communicator::join(nodes.rank(node, 0), stop, nodes.options, network);
      ASSERT_FALSE(joined.ok());
      EXPECT_EQ(joined.error().code, node == 0 ? Errc::deadline : Errc::refused)
          << joined.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ff::collective

// Messages between ranks, and the operations that consist of them: gather, scatter and all-to-all;
// on one host and between hosts. Results, matching, and the errors of ranks that disagree, are late
// or die.
#include "training/collective/messages.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <thread>
#include <vector>

#include "platform/base/rng.h"
#include "training/collective/block_table.h"
#include "training/collective/checks.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

using Shape = std::vector<uint32_t>;  // ranks of each node

std::string shape_name(const testing::TestParamInfo<Shape>& info) {
  return fmt::format("{}", fmt::join(info.param, "_"));
}

class MessagesTest : public testing::TestWithParam<Shape> {
 protected:
  Nodes nodes(int64_t limit_ns = 60 * kSecond) const {
    return {.ranks = GetParam(), .options = {.operation_ns = limit_ns}};
  }
};
INSTANTIATE_TEST_SUITE_P(On, MessagesTest, testing::Values(Shape{4}, Shape{2, 2}, Shape{1, 2, 1}),
                         shape_name);

MessageBuffer buffer_of(Bytes& bytes) { return {.memory = bytes.data(), .bytes = bytes.size()}; }

void barrier(Communicator& ranks) {
  const auto run = ranks.run({.kind = Collective::barrier});
  ASSERT_TRUE(run.ok()) << run.error().message;
}

// Memory of this rank alone, or of all ranks.
ByteSpan memory_for(Communicator& ranks, Memory memory, Bytes& own, size_t bytes) {
  own.assign(bytes + 1, std::byte{0});
  if (memory == Memory::own) return {own.data(), bytes};
  return ranks.allocate(bytes + 8).value().subspan(3, bytes);
}

// Around the ring of ranks; the receive is posted before or after the send.
void check_ring(Communicator& ranks, uint64_t bytes, Memory memory, bool receives_first) {
  const uint32_t rank = ranks.rank(), all = ranks.ranks();
  const uint32_t to = (rank + 1) % all, from = (rank + all - 1) % all;
  Bytes own_in, own_out;
  const ByteSpan in = memory_for(ranks, memory, own_in, bytes);
  const ByteSpan out = memory_for(ranks, memory, own_out, bytes);
  const Bytes sent = random_bytes(rank + 10, bytes), expected = random_bytes(from + 10, bytes);
  std::ranges::copy(sent, in.begin());
  const auto start = [&](bool receives) {
    return receives ? ranks.start_receive({out.data(), bytes}, from, 7)
                    : ranks.start_send({in.data(), bytes}, to, 7);
  };
  const auto first = start(receives_first);
  ASSERT_TRUE(first.ok()) << first.error().message;
  barrier(ranks);
  const auto second = start(!receives_first);
  ASSERT_TRUE(second.ok()) << second.error().message;
  for (const uint64_t number : {*second, *first}) {
    const auto waited = ranks.wait(number);
    ASSERT_TRUE(waited.ok()) << waited.error().message;
  }
  EXPECT_TRUE(std::ranges::equal(out, expected)) << "rank " << rank << ", " << bytes << " bytes";
}

TEST_P(MessagesTest, EverySizeMemoryAndOrder) {
  with_nodes(nodes(), [](Communicator& ranks) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, 600 * kKiB + 5}) {
      for (const Memory memory : {Memory::own, Memory::shared}) {
        for (const bool receives_first : {false, true}) {
          check_ring(ranks, bytes, memory, receives_first);
        }
      }
    }
    check_ring(ranks, 4 * kMiB + 5, Memory::own, false);  // past the caches
  });
}

TEST_P(MessagesTest, TagsMatchAndEqualOnesKeepTheirOrder) {
  with_nodes(nodes(), [](Communicator& ranks) {
    constexpr uint32_t kMessages = 50;
    std::vector<uint64_t> numbers;
    std::vector<uint32_t> values(kMessages);
    if (ranks.rank() == 0) {
      for (uint32_t i = 0; i < kMessages; i++) {
        values[i] = i;
        numbers.push_back(ranks.start_send({&values[i], 4}, 3, i % 3).value());
      }
    } else if (ranks.rank() == 3) {
      for (const uint32_t tag : {2U, 0U, 1U}) {  // another order of tags
        for (uint32_t i = tag; i < kMessages; i += 3) {
          numbers.push_back(ranks.start_receive({&values[i], 4}, 0, tag).value());
        }
      }
    }
    for (const uint64_t number : numbers) {
      const auto waited = ranks.wait(number);
      ASSERT_TRUE(waited.ok()) << waited.error().message;
    }
    if (ranks.rank() != 3) return barrier(ranks);
    for (uint32_t i = 0; i < kMessages; i++) EXPECT_EQ(values[i], i);
    barrier(ranks);
  });
}

TEST_P(MessagesTest, AReceiveFromAnyRankLearnsTheSender) {
  with_nodes(nodes(), [](Communicator& ranks) {
    const uint32_t all = ranks.ranks();
    for (int round = 0; round < 20; round++) {
      uint32_t value = ranks.rank() + 100;
      if (ranks.rank() != 1) {
        ASSERT_TRUE(ranks.wait(ranks.start_send({&value, 4}, 1, 0).value()).ok());
        barrier(ranks);
        continue;
      }
      std::vector<bool> seen(all);
      for (uint32_t i = 1; i < all; i++) {
        uint32_t got = 0, source = kAnyRank;
        const auto waited =
            ranks.wait(ranks.start_receive({&got, 4}, kAnyRank, 0, &source).value());
        ASSERT_TRUE(waited.ok()) << waited.error().message;
        ASSERT_LT(source, all);
        EXPECT_EQ(got, source + 100);
        seen[source] = true;
      }
      EXPECT_EQ(std::ranges::count(seen, true), all - 1);
      barrier(ranks);
    }
  });
}

TEST_P(MessagesTest, ARankSendsToItself) {
  with_nodes(nodes(), [](Communicator& ranks) {
    Bytes in = random_bytes(ranks.rank(), 5000), out(5000);
    const uint64_t sends = ranks.start_send(buffer_of(in), ranks.rank(), 1).value();
    ASSERT_TRUE(ranks.wait(ranks.start_receive(buffer_of(out), kAnyRank, 1).value()).ok());
    ASSERT_TRUE(ranks.wait(sends).ok());
    EXPECT_EQ(in, out);
    barrier(ranks);
  });
}

// Both ends get the error, and the job goes on.
TEST_P(MessagesTest, EndsThatDisagreeOnTheSizeAreNamed) {
  with_nodes(nodes(), [](Communicator& ranks) {
    for (const uint32_t late : {0U, 3U}) {
      Bytes sixteen(16), forty(40);
      if (ranks.rank() == late) barrier(ranks);
      Result<uint64_t> number = uint64_t{0};
      if (ranks.rank() == 0) number = ranks.start_send(buffer_of(sixteen), 3, 5);
      if (ranks.rank() == 3) number = ranks.start_receive(buffer_of(forty), 0, 5);
      if (ranks.rank() != late) barrier(ranks);
      if (ranks.rank() % 3 == 0) {
        const auto waited = ranks.wait(number.value());
        ASSERT_FALSE(waited.ok());
        EXPECT_EQ(waited.error().code, Errc::usage);
        for (const char* const part :
             {"rank 0 (process", "sends 16 bytes with tag 5", "rank 3 (process", "receives 40"}) {
          EXPECT_TRUE(contains(waited.error().message, part)) << waited.error().message;
        }
      }
      barrier(ranks);
    }
  });
}

TEST_P(MessagesTest, MessagesThatCannotBeAreRefused) {
  with_nodes(nodes(), [](Communicator& ranks) {
    Bytes data(8);
    const auto refused = [&](const Result<uint64_t>& started, const char* why) {
      ASSERT_FALSE(started.ok());
      EXPECT_EQ(started.error().code, Errc::usage);
      EXPECT_TRUE(contains(started.error().message, why)) << started.error().message;
    };
    refused(ranks.start_send(buffer_of(data), ranks.ranks(), 0), "rank 4: the job has 4 ranks");
    refused(ranks.start_receive(buffer_of(data), 1000, 0), "rank 1000: the job has 4 ranks");
    refused(ranks.start_send(buffer_of(data), kAnyRank, 0), "goes to one rank");
    refused(ranks.start_send({data.data(), UINT64_MAX}, 1, 0), "the most are");
    refused(ranks.start_receive({nullptr, 8}, 1, 0), "its memory is null");
    EXPECT_EQ(ranks.wait(uint64_t{1} << 63).error().code, Errc::usage);
    barrier(ranks);
  });
}

// A block of rank `from` for rank `to` in all-to-all.
uint64_t block_count(uint64_t seed, uint32_t from, uint32_t to) {
  SeededRng rng(seed * 10'000 + from * 100 + to);
  const uint64_t kind = rng.below(4);
  return kind == 0 ? 0 : kind == 1 ? 100'000 + rng.below(50'000) : rng.below(100);
}

void check_alltoall(Communicator& ranks, uint64_t seed, Memory memory) {
  const uint32_t rank = ranks.rank(), all = ranks.ranks();
  std::vector<uint64_t> in_counts(all), out_counts(all);
  for (uint32_t other = 0; other < all; other++) {
    in_counts[other] = block_count(seed, rank, other);
    out_counts[other] = block_count(seed, other, rank);
  }
  const auto total = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  Bytes own_in, own_out, expected;
  const ByteSpan in = memory_for(ranks, memory, own_in, total(in_counts) * 4);
  const ByteSpan out = memory_for(ranks, memory, own_out, total(out_counts) * 4);
  uint64_t at = 0;
  for (uint32_t other = 0; other < all; other++) {
    const Bytes block = random_bytes(seed + rank * 100 + other, in_counts[other] * 4);
    std::ranges::copy(block, in.begin() + static_cast<ptrdiff_t>(at));
    at += block.size();
    const Bytes theirs = random_bytes(seed + other * 100 + rank, out_counts[other] * 4);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
  }
  const auto run = ranks.run({.kind = Collective::alltoall,
                              .type = DataType::f32,
                              .in = in.data(),
                              .out = out.data(),
                              .in_counts = in_counts,
                              .out_counts = out_counts});
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_TRUE(std::ranges::equal(out, expected)) << "rank " << rank << ", seed " << seed;
}

TEST_P(MessagesTest, AllToAllWithBlocksOfAnySize) {
  const uint64_t seed = system_seed() % 1'000'000;
  SCOPED_TRACE("seed " + std::to_string(seed));
  with_nodes(nodes(), [seed](Communicator& ranks) {
    for (uint64_t round = 0; round < 8; round++) {
      check_alltoall(ranks, seed + round, round % 2 == 0 ? Memory::own : Memory::shared);
    }
  });
}

// The error names the two ranks, and all others finish; then the job goes on.
TEST_P(MessagesTest, AllToAllWhoseBlocksDifferNamesTheTwoRanks) {
  with_nodes(nodes(), [](Communicator& ranks) {
    std::vector<uint64_t> in_counts(4, 2), out_counts(4, 2);
    if (ranks.rank() == 1) in_counts[2] = 3;  // rank 2 expects 2
    std::vector<float> in(9), out(9);
    const auto run = ranks.run({.kind = Collective::alltoall,
                                .in = in.data(),
                                .out = out.data(),
                                .in_counts = in_counts,
                                .out_counts = out_counts});
    const bool is_wrong = ranks.rank() == 1 || ranks.rank() == 2;
    ASSERT_EQ(run.ok(), !is_wrong) << run.error().message;
    if (is_wrong) {
      EXPECT_EQ(run.error().code, Errc::usage);
      for (const char* const part : {"all-to-all of float (operation 0): rank 1 (process",
                                     "sends 12 bytes to rank 2 (process", "receives 8 bytes"}) {
        EXPECT_TRUE(contains(run.error().message, part)) << run.error().message;
      }
    }
    check_alltoall(ranks, 5, Memory::own);
  });
}

// Blocks of few bytes travel with others between two hosts, larger ones alone.
TEST_P(MessagesTest, AllToAllWithBlocksAroundTheLimit) {
  with_nodes(nodes(), [](Communicator& ranks) {
    const uint64_t most = gathered_block_max(2, 2);
    for (const uint64_t bytes : {most - 1, most, most + 1}) {
      const std::vector<uint64_t> counts(4, bytes);
      const Bytes in = random_bytes(bytes + ranks.rank(), 4 * bytes);
      Bytes out(4 * bytes);
      const auto run = ranks.run({.kind = Collective::alltoall,
                                  .type = DataType::u8,
                                  .in = in.data(),
                                  .out = out.data(),
                                  .in_counts = counts,
                                  .out_counts = counts});
      ASSERT_TRUE(run.ok()) << run.error().message;
      for (uint32_t from = 0; from < 4; from++) {
        const Bytes theirs = random_bytes(bytes + from, 4 * bytes);
        EXPECT_TRUE(std::ranges::equal(ByteView(out).subspan(from * bytes, bytes),
                                       ByteView(theirs).subspan(ranks.rank() * bytes, bytes)));
      }
    }
  });
}

// However large the block of rank 1 for rank 2 is, and what rank 2 expects.
TEST_P(MessagesTest, AllToAllWhoseBlocksDifferOnBothSidesOfTheLimit) {
  with_nodes(nodes(), [](Communicator& ranks) {
    constexpr uint64_t kLarge = 100'000;
    uint64_t seed = 0;
    for (const auto& [sent, expected] : std::vector<std::pair<uint64_t, uint64_t>>{
             {0, 8}, {8, 0}, {8, kLarge}, {kLarge, 8}, {kLarge, 0}, {kLarge, kLarge + 1}}) {
      SCOPED_TRACE(fmt::format("rank {}: {} bytes, {} expected", ranks.rank(), sent, expected));
      std::vector<uint64_t> in_counts(4, 4), out_counts(4, 4);
      if (ranks.rank() == 1) in_counts[2] = sent;
      if (ranks.rank() == 2) out_counts[1] = expected;
      Bytes in(kLarge + 20), out(kLarge + 20);
      const auto run = ranks.run({.kind = Collective::alltoall,
                                  .type = DataType::u8,
                                  .in = in.data(),
                                  .out = out.data(),
                                  .in_counts = in_counts,
                                  .out_counts = out_counts});
      const bool is_wrong = ranks.rank() == 1 || ranks.rank() == 2;
      ASSERT_EQ(run.ok(), !is_wrong) << run.error().message;
      if (is_wrong) {
        EXPECT_EQ(run.error().code, Errc::usage);
        EXPECT_TRUE(contains(run.error().message, fmt::format("sends {} bytes to rank 2", sent)) &&
                    contains(run.error().message, fmt::format("receives {} bytes", expected)))
            << run.error().message;
      }
      check_alltoall(ranks, ++seed, Memory::own);
    }
  });
}

// The counts may change once the operation has started.
TEST_P(MessagesTest, AllToAllReadsItsCountsAtTheStart) {
  with_nodes(nodes(), [](Communicator& ranks) {
    std::vector<uint64_t> counts(4, 3);
    const std::vector<float> in(12, static_cast<float>(ranks.rank()));
    std::vector<float> out(12);
    const auto number = ranks.start({.kind = Collective::alltoall,
                                     .in = in.data(),
                                     .out = out.data(),
                                     .in_counts = counts,
                                     .out_counts = counts});
    ASSERT_TRUE(number.ok()) << number.error().message;
    counts.assign(4, 1'000'000);
    const auto waited = ranks.wait(*number);
    ASSERT_TRUE(waited.ok()) << waited.error().message;
    for (size_t at = 0; at < 12; at++) EXPECT_EQ(out[at], static_cast<float>(at / 3));
  });
}

TEST_P(MessagesTest, ManyAllToAllsInFlight) {
  with_nodes(nodes(), [](Communicator& ranks) {
    constexpr size_t kOperations = 3 * kInflightMax;
    const std::vector<uint64_t> counts(4, 50);
    std::vector<std::vector<uint64_t>> in(kOperations), out(kOperations);
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < kOperations; i++) {
      in[i].assign(200, i * 10 + ranks.rank());
      out[i].resize(200);
      const auto number = ranks.start({.kind = Collective::alltoall,
                                       .type = DataType::i64,
                                       .in = in[i].data(),
                                       .out = out[i].data(),
                                       .in_counts = counts,
                                       .out_counts = counts});
      ASSERT_TRUE(number.ok()) << number.error().message;
      if (i % 8 == 7) barrier(ranks);  // of the others, those before finish without a wait()
    }
    for (size_t i = 0; i < kInflightMax; i++) barrier(ranks);
    for (size_t i = 0; i < kOperations; i++) {
      for (size_t at = 0; at < 200; at++) ASSERT_EQ(out[i][at], i * 10 + at / 50) << i;
    }
  });
}

TEST_P(MessagesTest, GatherAndScatterOfEveryRootSizeAndMemory) {
  with_nodes(nodes(), [](Communicator& ranks) {
    uint64_t test = 1;
    for (const Collective kind : {Collective::gather, Collective::scatter}) {
      for (uint32_t root = 0; root < ranks.ranks(); root++) {
        for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1001}, uint64_t{70'000}}) {
          for (const Memory memory : {Memory::own, Memory::shared, Memory::in_place}) {
            check_one(ranks, {.kind = kind, .type = DataType::bf16, .root = root, .count = count},
                      test++, memory);
          }
        }
      }
    }
  });
}

TEST_P(MessagesTest, RanksThatStartDifferentOperationsAreNamed) {
  with_nodes(nodes(), [](Communicator& ranks) {
    std::vector<float> in(16), out(16);
    const std::vector<uint64_t> counts(4, 1);
    Operation operation{.kind = Collective::alltoall,
                        .in = in.data(),
                        .out = out.data(),
                        .in_counts = counts,
                        .out_counts = counts};
    if (ranks.rank() == 3) {
      operation = {
          .kind = Collective::gather, .root = 3, .count = 1, .in = in.data(), .out = out.data()};
    }
    const auto run = ranks.run(operation);
    ASSERT_FALSE(run.ok());
    EXPECT_EQ(run.error().code, Errc::usage) << run.error().message;
    for (const char* const part :
         {"all-to-all of float", "rank 3 (process", "requested gather of 1 float, root 3"}) {
      EXPECT_TRUE(contains(run.error().message, part)) << run.error().message;
    }
    if (ranks.world() == nullptr) check_alltoall(ranks, 9, Memory::own);
  });
}

TEST_P(MessagesTest, AllToAllThatCannotBeIsRefused) {
  with_nodes(nodes(), [](Communicator& ranks) {
    std::vector<float> data(16);
    std::vector<uint64_t> counts(4, 1);
    Operation operation{.kind = Collective::alltoall,
                        .in = data.data(),
                        .out = data.data() + 8,
                        .in_counts = counts,
                        .out_counts = counts};
    const auto refused = [&](const char* why) {
      const auto started = ranks.start(operation);
      ASSERT_FALSE(started.ok());
      EXPECT_EQ(started.error().code, Errc::usage);
      EXPECT_TRUE(contains(started.error().message, why)) << started.error().message;
    };
    operation.out_counts = std::span(counts).first(3);
    refused("it needs 4 counts");
    operation.out_counts = counts;
    operation.out = data.data() + 1;
    refused("overlaps its output");
    operation.out = nullptr;
    refused("its output is null");
    operation.out = data.data() + 8;
    const std::vector<uint64_t> huge(4, UINT64_MAX / 2);
    operation.in_counts = huge;
    refused("too many elements");
    std::vector<uint64_t> own = counts;
    own[ranks.rank()] = 2;
    operation.in_counts = own;
    refused("to itself");
    barrier(ranks);
  });
}

// Rank 0 of each host leaves; others go on.
TEST_P(MessagesTest, ARankThatLeavesPassesOnLaterMessages) {
  std::atomic<bool> leaves = false;
  with_nodes(nodes(), [&leaves](Communicator& ranks) {
    Bytes data(100);
    const auto exchange = [&] {  // between rank 1 and rank 3
      if (ranks.rank() % 2 == 0) return;
      const uint32_t peer = ranks.rank() == 1 ? 3 : 1;
      const auto number = peer == 3 ? ranks.start_send(buffer_of(data), peer, 0)
                                    : ranks.start_receive(buffer_of(data), peer, 0);
      ASSERT_TRUE(number.ok()) << number.error().message;
      const auto waited = ranks.wait(*number);
      ASSERT_TRUE(waited.ok()) << waited.error().message;
    };
    exchange();
    barrier(ranks);
    if (ranks.rank() % 2 == 0) {
      leaves = true;
      leaves.notify_all();
      return;
    }
    leaves.wait(false);
    for (int round = 0; round < 5 && !testing::Test::HasFatalFailure(); round++) {
      SystemClock().sleep_ns(20 * kMillisecond);  // the program computes: no message is in flight
      exchange();
    }
  });
}

TEST_P(MessagesTest, ALatePeerIsNamedAtTheDeadline) {
  std::atomic<int> failed = 0;
  with_nodes(nodes(kSecond / 2), [&failed](Communicator& ranks) {
    Bytes data(100);
    if (ranks.rank() == 3) {  // until all others have failed
      for (int seen = failed; seen < 3; seen = failed) failed.wait(seen);
      return;
    }
    const auto started = ranks.start_receive(buffer_of(data), 3, 4);
    const auto waited = started ? ranks.wait(*started) : Result<void>(started.error());
    failed++;
    failed.notify_all();
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::deadline) << waited.error().message;
    EXPECT_TRUE(contains(waited.error().message, "rank 3 (process")) << waited.error().message;
    EXPECT_TRUE(contains(waited.error().message, "receive of 100 bytes from rank 3, tag 4"))
        << waited.error().message;
  });
}

// Rank 0 of a host passes on what its other ranks still wait for.
TEST_P(MessagesTest, ARankThatLeavesFinishesTheMessagesOfItsHost) {
  for (int round = 0; round < 5; round++) {
    with_nodes(nodes(), [](Communicator& ranks) {
      const std::vector<uint64_t> counts(4, 200'000);
      std::vector<float> in(800'000, static_cast<float>(ranks.rank())), out(800'000);
      const auto run = ranks.run({.kind = Collective::alltoall,
                                  .in = in.data(),
                                  .out = out.data(),
                                  .in_counts = counts,
                                  .out_counts = counts});
      ASSERT_TRUE(run.ok()) << run.error().message;
      for (size_t i = 0; i < out.size(); i += 1000) {
        ASSERT_EQ(out[i], static_cast<float>(i / 200'000));
      }
    });
  }
}

TEST_P(MessagesTest, ARankThatHasLeftIsNamed) {
  with_nodes(nodes(), [](Communicator& ranks) {
    barrier(ranks);
    Bytes data(100);
    if (ranks.rank() != 0) return;
    const auto waited = ranks.wait(ranks.start_receive(buffer_of(data), 3, 0).value());
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::unreachable);
    EXPECT_TRUE(contains(waited.error().message, "rank 3 (process")) << waited.error().message;
    EXPECT_TRUE(contains(waited.error().message, "has left")) << waited.error().message;
  });
}

TEST_P(MessagesTest, ThreadsWaitWhileAnotherStarts) {
  with_nodes(nodes(), [](Communicator& ranks) {
    constexpr uint32_t kRounds = 200;
    std::vector<uint64_t> sums(kRounds), sends(kRounds), receives(kRounds);
    std::vector<uint32_t> out(kRounds), in(kRounds), total(kRounds, 1);
    std::atomic<uint32_t> begun = 0;
    const uint32_t to = (ranks.rank() + 1) % 4, from = (ranks.rank() + 3) % 4;
    const auto wait_all = [&](const std::vector<uint64_t>& numbers) {
      for (uint32_t i = 0; i < kRounds; i++) {
        for (uint32_t seen = begun; seen <= i; seen = begun) begun.wait(seen);
        const auto waited = ranks.wait(numbers[i]);
        ASSERT_TRUE(waited.ok()) << waited.error().message;
      }
    };
    std::array<std::thread, 3> threads = {std::thread([&] { wait_all(sums); }),
                                          std::thread([&] { wait_all(sends); }),
                                          std::thread([&] { wait_all(receives); })};
    for (uint32_t i = 0; i < kRounds; i++) {
      out[i] = i * 10 + ranks.rank();
      const Operation sum{.type = DataType::i32, .count = 1, .in = &total[i], .out = &total[i]};
      auto number = ranks.start(sum);
      while (!number && number.error().code == Errc::busy) {
        std::this_thread::yield();
        number = ranks.start(sum);
      }
      sums[i] = number.value();
      sends[i] = ranks.start_send({&out[i], 4}, to, 0).value();
      receives[i] = ranks.start_receive({&in[i], 4}, from, 0).value();
      begun++;
      begun.notify_all();
    }
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 0; i < kRounds; i++) {
      EXPECT_EQ(in[i], i * 10 + from);
      EXPECT_EQ(total[i], 4u);
    }
    barrier(ranks);
  });
}

constexpr int kNamed = 7;

// Elements of a block of an all-to-all that travels with others between two hosts, and alone.
constexpr uint64_t kSmallBlock = 200, kLargeBlock = 30'000;

// Exchanges blocks with all until an operation fails; kNamed: the error names the victim.
int exchange_until_error(Communicator& ranks, uint64_t block, Errc code, uint32_t victim) {
  const std::vector<uint64_t> counts(ranks.ranks(), block);
  std::vector<float> in(block * ranks.ranks()), out(in.size());
  for (;;) {
    const auto run = ranks.run({.kind = Collective::alltoall,
                                .in = in.data(),
                                .out = out.data(),
                                .in_counts = counts,
                                .out_counts = counts});
    if (run) continue;
    const bool right = run.error().code == code &&
                       contains(run.error().message, fmt::format("rank {} (process", victim));
    if (!right) std::fprintf(stderr, "rank %u: %s\n", ranks.rank(), run.error().message.c_str());
    return right ? kNamed : 1;
  }
}

int exchange_until_signal(Communicator& ranks, uint64_t block, uint64_t seed, int signal) {
  SeededRng rng(seed);
  const std::vector<uint64_t> counts(ranks.ranks(), block);
  std::vector<float> in(block * ranks.ranks()), out(in.size());
  const Operation operation{.kind = Collective::alltoall,
                            .in = in.data(),
                            .out = out.data(),
                            .in_counts = counts,
                            .out_counts = counts};
  for (uint64_t left = 1 + rng.below(10); left > 0; left--) {
    if (!ranks.run(operation)) return 1;
  }
  if (rng.below(2) == 0 && !ranks.start(operation)) return 1;
  (void)::kill(::getpid(), signal);
  return 2;
}

// `block`: elements of a block.
void lose_rank(const Nodes& nodes, uint32_t victim, uint64_t block, int signal, Errc code) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(fmt::format("seed {}, victim {}", seed, victim));
  std::vector<pid_t> pids;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      const auto body = [&](Communicator& ranks) {
        return ranks.rank() == victim ? exchange_until_signal(ranks, block, seed, signal)
                                      : exchange_until_error(ranks, block, code, victim);
      };
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
    }
  }
  for (uint32_t rank = 0; rank < pids.size(); rank++) {
    if (rank == victim) continue;
    EXPECT_EQ(exit_of(pids[rank]), kNamed) << "rank " << rank;
  }
  (void)::kill(pids[victim], SIGKILL);
  EXPECT_EQ(exit_of(pids[victim]), 128 + SIGKILL);
}

TEST_P(MessagesTest, AKilledRankIsNamed) {
  for (uint32_t victim = 0; victim < 4; victim++) {
    const uint64_t block = victim % 2 == 0 ? kSmallBlock : kLargeBlock;
    lose_rank(nodes(), victim, block, SIGKILL, Errc::unreachable);
  }
}

TEST_P(MessagesTest, AStoppedRankIsNamedAtTheDeadline) {
  for (const uint32_t victim : {0U, 2U}) {
    const uint64_t block = victim == 0 ? kLargeBlock : kSmallBlock;
    lose_rank(nodes(kSecond), victim, block, SIGSTOP, Errc::deadline);
  }
}

}  // namespace
}  // namespace ff::collective

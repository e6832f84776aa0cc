// Collective operations between ranks of a host: results of all types and sizes, many in flight,
// and what ranks hear that do not agree.
#include "reduce/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "reduce/plan.h"
#include "reduce/ranks.h"

namespace ff::reduce {
namespace {

using simd::DataType;
using simd::ReduceOp;
using Bytes = std::vector<std::byte>;

Bytes random_bytes(uint64_t seed, uint64_t size) {
  SeededRng rng(seed);
  Bytes bytes(align_up(size, 8));
  for (uint64_t at = 0; at < bytes.size(); at += 8) store_le(&bytes[at], rng.next());
  bytes.resize(size);
  return bytes;
}

// What rank `rank` gives in the test number `test`.
Bytes input_of(const Request& request, uint32_t rank, uint32_t ranks, uint64_t test) {
  return random_bytes(test * 100 + rank, in_bytes(request, rank, ranks));
}

// By one call over all inputs.
Bytes expected_of(const Request& request, uint32_t rank, uint32_t ranks, uint64_t test) {
  std::vector<Bytes> inputs;
  for (uint32_t other = 0; other < ranks; other++) {
    inputs.push_back(input_of(request, other, ranks, test));
  }
  Bytes out(out_bytes(request, rank, ranks));
  const uint64_t block = request.count * simd::size_of(request.type);
  switch (request.kind) {
    case Collective::barrier: break;
    case Collective::broadcast: out = inputs[request.root]; break;
    case Collective::allgather:
      for (uint32_t other = 0; other < ranks; other++) {
        std::copy(inputs[other].begin(), inputs[other].end(),
                  out.begin() + static_cast<ptrdiff_t>(other * block));
      }
      break;
    default: {
      const uint64_t at = request.kind == Collective::reduce_scatter ? rank * block : 0;
      std::vector<const void*> from;
      for (const Bytes& one : inputs) from.push_back(one.data() + at);
      void* const to = out.data();
      const simd::Reduce what{.type = request.type, .op = request.op, .ranks = ranks};
      if (!out.empty()) simd::reduce_arrays(what, {from, {&to, 1}, request.count});
    }
  }
  return out;
}

enum class Memory { shared, own, in_place };

// One operation on all ranks, of which each looks at what it got.
void check_one(Communicator& ranks, const Request& request, uint64_t test, Memory memory) {
  const uint32_t rank = ranks.rank(), count = ranks.ranks();
  const Bytes input = input_of(request, rank, count, test);
  const Bytes expected = expected_of(request, rank, count, test);
  const uint64_t larger = std::max(input.size(), expected.size());
  Bytes own_in = input, own_out(expected.size());
  own_in.resize(larger);
  Operation operation{.kind = request.kind,
                      .type = request.type,
                      .op = request.op,
                      .root = request.root,
                      .count = request.count,
                      .in = own_in.data(),
                      .out = own_out.data()};
  ByteSpan in, out;
  if (memory == Memory::shared) {
    in = ranks.allocate(input.size() + 8).value();
    out = ranks.allocate(expected.size() + 8).value();
    operation.in = in.data() + test % 8;  // anywhere
    operation.out = out.data() + test % 5;
    std::copy(input.begin(), input.end(), in.begin() + static_cast<ptrdiff_t>(test % 8));
  } else if (memory == Memory::in_place) {
    operation.out = own_in.data();
  }
  const auto run = ranks.run(operation);
  ASSERT_TRUE(run.ok()) << run.error().message;
  const auto* got = static_cast<const std::byte*>(operation.out);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got))
      << text_of(request) << " on rank " << rank << " of " << count << ", test " << test;
  if (memory == Memory::shared) {
    ASSERT_TRUE(ranks.run({.kind = Collective::barrier}).ok());
    EXPECT_TRUE(ranks.free(in.data()).ok());
    EXPECT_TRUE(ranks.free(out.data()).ok());
  }
}

constexpr std::array kKinds = {Collective::allreduce, Collective::reduce, Collective::broadcast,
                               Collective::allgather, Collective::reduce_scatter};

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
      check_one(ranks, {.type = DataType::f32, .count = 2'500'003}, 5, memory);
    }
  });
}

TEST(CommunicatorTest, ManyInFlightEndInAnyOrder) {
  with_ranks(4, [](Communicator& ranks) {
    constexpr uint64_t kCount = 10'000;
    std::vector<std::vector<int32_t>> in(kJobs), out(kJobs);
    SeededRng rng(ranks.rank());
    for (int round = 0; round < 5; round++) {
      std::vector<uint64_t> numbers;
      for (uint32_t i = 0; i < kJobs; i++) {
        in[i].assign(kCount, static_cast<int32_t>(i * 10 + ranks.rank()));
        out[i].assign(kCount, 0);
        numbers.push_back(ranks
                              .start({.type = DataType::i32,
                                      .count = kCount,
                                      .in = in[i].data(),
                                      .out = out[i].data()})
                              .value());
      }
      const auto more = ranks.start({.kind = Collective::barrier});
      ASSERT_FALSE(more.ok());
      EXPECT_EQ(more.error().code, Errc::busy);
      for (size_t i = numbers.size(); i > 1; i--) std::swap(numbers[i - 1], numbers[rng.below(i)]);
      for (const uint64_t number : numbers) ASSERT_TRUE(ranks.wait(number).ok());
      for (uint32_t i = 0; i < kJobs; i++) {
        EXPECT_EQ(out[i], std::vector<int32_t>(kCount, static_cast<int32_t>(i * 40 + 6)));
      }
      EXPECT_EQ(ranks.wait(numbers[0]).error().code, Errc::usage) << "waited for twice";
    }
  });
}

TEST(CommunicatorTest, RanksThatDoNotAgreeAllHearIt) {
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

TEST(CommunicatorTest, WhatCannotBeIsRefused) {
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

TEST(CommunicatorTest, TwoJobsAtOnce) {
  std::thread other([] {
    with_ranks(3, [](Communicator& ranks) {
      for (uint64_t test = 1; test < 50; test++) {
        check_one(ranks, {.type = DataType::f16, .count = 3000 + test}, test, Memory::own);
      }
    });
  });
  with_ranks(2, [](Communicator& ranks) {
    for (uint64_t test = 1; test < 50; test++) {
      check_one(ranks, {.type = DataType::f64, .count = 2000 + test}, test, Memory::shared);
    }
  });
  other.join();
}

}  // namespace
}  // namespace ff::reduce

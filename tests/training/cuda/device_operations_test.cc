// Collective operations on devices: results as on the host, their order in the streams of the
// program, and calls that are refused and leave the communicator as it is.
#include "training/cuda/device_ranks.h"

namespace ff::cuda {
namespace {

constexpr std::array<uint64_t, 8> kCounts = {0, 1, 3, 1000, 1024, 1025, 4099, 20'001};

// All kinds and sizes; types and reductions take turns.
void check_table(DeviceRank& rank, uint64_t first_test) {
  uint64_t test = first_test;
  for (const Collective kind : collective::kKinds) {
    for (const uint64_t count : kCounts) {
      for (const bool in_place : {false, true}) {
        const CollectiveRequest request{.kind = kind,
                                        .type = static_cast<DataType>(test % simd::kDataTypes),
                                        .op = static_cast<ReduceOp>(test % simd::kReduceOps),
                                        .root = static_cast<uint32_t>(test % rank.ranks.ranks()),
                                        .count = count};
        check_on_device(rank, request, test, in_place);
        test++;
      }
    }
  }
}

class DeviceRanksTest : public testing::TestWithParam<uint32_t> {};

TEST_P(DeviceRanksTest, EveryKindAndSizeAsOnTheHost) {
  const uint32_t ranks = GetParam();
  fake_cuda_seed(ranks);
  with_device_ranks(ranks, [&](DeviceRank& rank) { check_table(rank, 80 * ranks); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceRanksTest, testing::Values(1, 2, 3, 4));

TEST(DeviceOperationsTest, NothingIsCopiedBeforeTheWorkOfTheStream) {
  with_device_ranks(2, [](DeviceRank& rank) {
    FloatSum sum(rank, 10'000, 1);
    const float late = 5;
    fake_cuda_hold(rank.stream);
    fake_cuda_write(rank.stream, sum.array.at(), &late, sizeof late);
    const auto number = rank.device.start(sum.operation, rank.handle());
    ASSERT_TRUE(number.ok()) << number.error().message;
    fake_cuda_release(rank.stream);
    ASSERT_TRUE(rank.device.wait(*number).ok());
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
    std::vector<float> expected(10'000, 2);
    expected[0] = 10;
    EXPECT_EQ(sum.load(), expected);
  });
}

// Neither waits for the other on the host.
TEST(DeviceOperationsTest, AnOperationMayUseTheResultOfTheOneBefore) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    fake_cuda_seed(seed);
    with_device_ranks(2, [](DeviceRank& rank) {
      FloatSum sum(rank, 5000, 1);
      std::vector<uint64_t> numbers;
      for (int i = 0; i < 5; i++) {
        const auto number = rank.device.start(sum.operation, rank.handle());
        ASSERT_TRUE(number.ok()) << number.error().message;
        numbers.push_back(*number);
      }
      // Of the end alone, which comes last of the ones before.
      Operation end = sum.operation;
      end.count = 500;
      end.in = end.out = sum.array.at(4500 * sizeof(float));
      const auto last = rank.device.start(end, rank.handle());
      ASSERT_TRUE(last.ok()) << last.error().message;
      numbers.push_back(*last);
      for (const uint64_t number : numbers) ASSERT_TRUE(rank.device.wait(number).ok());
      ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
      std::vector<float> expected(5000, 32);
      std::fill(expected.begin() + 4500, expected.end(), 64.0F);
      EXPECT_EQ(sum.load(), expected);
    });
  }
}

TEST(DeviceOperationsTest, StreamsOfTheirOwnAndTheDefaultStream) {
  with_device_ranks(3, [](DeviceRank& rank) {
    FloatSum first(rank, 3000, 1), second(rank, 2000, 2), third(rank, 10, 3);
    void* const other = fake_cuda_stream(rank.context);
    const auto one = rank.device.start(first.operation, rank.handle());
    const auto two = rank.device.start(second.operation, static_cast<CUstream>(other));
    const auto three = rank.device.start(third.operation, nullptr);
    ASSERT_TRUE(one.ok() && two.ok() && three.ok());
    ASSERT_TRUE(rank.device.wait(*three).ok());  // in any order
    ASSERT_TRUE(rank.device.wait(*one).ok());
    ASSERT_TRUE(rank.device.wait(*two).ok());
    for (void* const stream : {rank.stream, other, static_cast<void*>(nullptr)}) {
      ASSERT_EQ(fake_cuda_synchronize(stream), 0);
    }
    EXPECT_EQ(first.load(), std::vector<float>(3000, 3));
    EXPECT_EQ(second.load(), std::vector<float>(2000, 6));
    EXPECT_EQ(third.load(), std::vector<float>(10, 9));
  });
}

TEST(DeviceOperationsTest, BetweenOperationsOnTheHost) {
  with_device_ranks(2, [](DeviceRank& rank) {
    FloatSum sum(rank, 9000, 1);
    for (int i = 0; i < 3; i++) {
      float host = 1;
      const auto before = rank.ranks.start({.count = 1, .in = &host, .out = &host});
      ASSERT_TRUE(before.ok());
      const auto number = rank.device.start(sum.operation, rank.handle());
      ASSERT_TRUE(number.ok());
      rank.device.drain();
      ASSERT_TRUE(rank.ranks.run({.kind = Collective::barrier}).ok());
      ASSERT_TRUE(rank.ranks.wait(*before).ok());
      ASSERT_TRUE(rank.device.wait(*number).ok());
      EXPECT_EQ(host, 2);
    }
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
    EXPECT_EQ(sum.load(), std::vector<float>(9000, 8));
  });
}

TEST(DeviceOperationsTest, RanksThatCallDifferentOperationsGoOn) {
  with_device_ranks(3, [](DeviceRank& rank) {
    // As many chunks, and more.
    for (const uint64_t other : {19'999, 100'000, 10}) {
      FloatSum sum(rank, rank.ranks.rank() == 1 ? other : 20'000, 1);
      const auto run = rank.run(sum.operation);
      ASSERT_FALSE(run.ok());
      EXPECT_EQ(run.error().code, Errc::usage) << run.error().message;
      const std::string& message = run.error().message;
      EXPECT_NE(message.find("rank 0 (process"), std::string::npos) << message;
      EXPECT_NE(message.find("allreduce of 20000 float, sum"), std::string::npos) << message;
      EXPECT_NE(message.find("rank 1 (process"), std::string::npos) << message;
      EXPECT_NE(message.find(fmt::format("allreduce of {} float, sum", other)), std::string::npos)
          << message;
      EXPECT_FALSE(rank.run(sum.operation).ok());
      ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
    }
    FloatSum sum(rank, 20'000, 1);
    ASSERT_TRUE(rank.run(sum.operation).ok());
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
    EXPECT_EQ(sum.load(), std::vector<float>(20'000, 3));
  });
}

// Errc::usage with this text.
void expect_refused(const Result<uint64_t>& started, const char* text) {
  ASSERT_FALSE(started.ok()) << text;
  EXPECT_EQ(started.error().code, Errc::usage);
  EXPECT_NE(started.error().message.find(text), std::string::npos) << started.error().message;
}

TEST(DeviceOperationsTest, CallsThatCannotBe) {
  with_device_ranks(2, [](DeviceRank& rank) {
    FloatSum sum(rank, 1000, 1);
    float host = 1;
    Operation wrong = sum.operation;
    wrong.in = &host;
    expect_refused(rank.device.start(wrong, rank.handle()), "input, 0x");
    wrong = sum.operation;
    wrong.out = &host;
    expect_refused(rank.device.start(wrong, rank.handle()), "is not memory of a CUDA device");
    wrong.out = nullptr;
    expect_refused(rank.device.start(wrong, rank.handle()), "its output is null");
    wrong.out = sum.array.at(4);
    expect_refused(rank.device.start(wrong, rank.handle()), "overlaps");
    wrong.kind = Collective::broadcast;
    wrong.root = 2;
    expect_refused(rank.device.start(wrong, rank.handle()), "the job has 2 ranks");
    fake_cuda_capture(rank.stream, 1);
    expect_refused(rank.device.start(sum.operation, rank.handle()), "captured into a graph");
    fake_cuda_capture(rank.stream, 0);
    ASSERT_TRUE(rank.run(sum.operation).ok());
    void* const other = fake_cuda_context();
    void* const there = fake_cuda_stream(other);
    expect_refused(rank.device.start(sum.operation, static_cast<CUstream>(there)),
                   "is memory of device");
    const DeviceArray elsewhere(other, 4000);
    wrong = {.count = 1000, .in = elsewhere.at(), .out = elsewhere.at()};
    expect_refused(rank.device.start(wrong, static_cast<CUstream>(there)),
                   "another CUDA context is current");
    fake_cuda_make_current(nullptr);
    expect_refused(rank.device.start(sum.operation, rank.handle()), "no CUDA context");
    fake_cuda_make_current(rank.context);
    const auto waited = rank.device.wait(DeviceOperations::kFirst);
    ASSERT_FALSE(waited.ok());
    EXPECT_NE(waited.error().message.find("was waited for"), std::string::npos);
    ASSERT_TRUE(rank.run(sum.operation).ok());
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
    EXPECT_EQ(sum.load(), std::vector<float>(1000, 4));
  });
}

TEST(DeviceOperationsTest, OperationsThatNobodyWaitsForAreLimited) {
  with_device_ranks(2, [](DeviceRank& rank) {
    FloatSum sum(rank, 1, 0);
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < DeviceOperations::kUnfinishedMax; i++) {
      const auto number = rank.device.start(sum.operation, rank.handle());
      ASSERT_TRUE(number.ok());
      numbers.push_back(*number);
    }
    const auto refused = rank.device.start(sum.operation, rank.handle());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::busy);
    for (const uint64_t number : numbers) ASSERT_TRUE(rank.device.wait(number).ok());
    ASSERT_TRUE(rank.run(sum.operation).ok());
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
  });
}

// The destructor of DeviceOperations ends those in flight; the memory of the program stays.
TEST(DeviceOperationsTest, OperationsInFlightAreAbandoned) {
  SystemClock clock;
  with_device_ranks(1, [&](DeviceRank& rank) {
    StopToken stop(clock);
    FloatSum sum(rank, 50'000, 1);
    {
      DeviceOperations device(fake_driver(), rank.ranks, stop, kSmallChunks);
      for (int i = 0; i < 10; i++) ASSERT_TRUE(device.start(sum.operation, rank.handle()).ok());
    }
    ASSERT_EQ(fake_cuda_synchronize(rank.stream), 0);
  });
}

}  // namespace
}  // namespace ff::cuda

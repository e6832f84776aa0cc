// Operations on devices when something fails: each call of the driver, a copy, a stream that never
// gets on, the library itself. Every rank gets an error that names the rank and the cause.
#include <array>

#include "training/cuda/device_ranks.h"

namespace ff::cuda {
namespace {

constexpr uint32_t kVictim = 1;
constexpr int kIllegalAddress = 700;

bool mentions(const Result<void>& result, const std::string& text) {
  return !result && result.error().message.find(text) != std::string::npos;
}

using BothResults = std::array<Result<void>, 2>;

// Operations with several chunks until one fails, at most three: what each rank gets at last.
BothResults run_with_failure(const char* function, unsigned nth, Remains remains) {
  BothResults results;
  const auto body = [&](DeviceRank& rank) {
    FloatSum sum(rank, 8000, 1);
    Result<void>& result = results[rank.ranks.rank()];
    ASSERT_TRUE(rank.ranks.run({.kind = Collective::barrier}).ok());
    if (rank.ranks.rank() == kVictim) {
      fake_cuda_fail(rank.context, function, nth, kIllegalAddress);
    }
    for (int i = 0; i < 3 && result; i++) result = rank.run(sum.operation);
    // The last call of an operation has no other rank that waits for it.
    if (result) result = rank.ranks.run({.kind = Collective::barrier});
    const int error = fake_cuda_synchronize(rank.stream);
    if (result) {
      ASSERT_EQ(error, 0);
      EXPECT_EQ(sum.load(), std::vector<float>(8000, 8));
    }
  };
  with_device_ranks(2, body, {}, remains);
  return results;
}

// Both ranks name the victim and the cause.
void expect_named(const BothResults& results, const std::string& function) {
  for (const Result<void>& result : results) {
    ASSERT_FALSE(result.ok()) << function;
    const Error& error = result.error();
    EXPECT_EQ(error.code, Errc::failed) << error.message;
    for (const std::string& part :
         {std::string("rank 1 (process"), function, std::string("CUDA_ERROR_ILLEGAL_ADDRESS")}) {
      EXPECT_NE(error.message.find(part), std::string::npos) << part << ": " << error.message;
    }
  }
}

TEST(DeviceFailureTest, EveryCallThatFailsIsThatOfAllRanks) {
  for (const char* const function :
       {"cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent", "cuPointerGetAttribute",
        "cuMemHostRegister", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamCreate",
        "cuStreamWaitEvent", "cuStreamIsCapturing", "cuEventCreate", "cuEventRecord",
        "cuEventQuery"}) {
    unsigned failures = 0;
    for (const unsigned nth : {1u, 2u, 3u, 5u, 8u, 13u, 21u, 34u, 55u}) {
      const auto results = run_with_failure(function, nth, Remains::nothing);
      if (fake_cuda_failures() == 0) {  // it is not called that often
        EXPECT_TRUE(results[0].ok() && results[1].ok()) << function << ", call " << nth;
        break;
      }
      failures++;
      expect_named(results, function);
      if (HasFailure()) return;
    }
    EXPECT_GT(failures, 0u) << function << " is never called";
  }
}

// Where nothing can be done any more, nobody is harmed.
TEST(DeviceFailureTest, CallsThatFailAtTheEndHarmNobody) {
  for (const char* const function : {"cuCtxPopCurrent", "cuStreamQuery", "cuStreamDestroy",
                                     "cuEventDestroy", "cuMemHostUnregister"}) {
    const auto results = run_with_failure(function, 1, Remains::anything);
    EXPECT_EQ(fake_cuda_failures(), 1u) << function;
    EXPECT_TRUE(results[0].ok() && results[1].ok()) << function;
  }
}

TEST(DeviceFailureTest, ACopyThatFailsIsThatOfAllRanks) {
  for (const unsigned nth : {1u, 2u, 7u, 16u, 17u, 30u}) {
    const auto results = run_with_failure("execute", nth, Remains::anything);
    ASSERT_EQ(fake_cuda_failures(), 1u);
    expect_named(results, "cu");
  }
}

TEST(DeviceFailureTest, LaterOperationsFailLikewise) {
  with_device_ranks(2, [](DeviceRank& rank) {
    FloatSum sum(rank, 8000, 1);
    ASSERT_TRUE(rank.run(sum.operation).ok());
    ASSERT_TRUE(rank.ranks.run({.kind = Collective::barrier}).ok());
    if (rank.ranks.rank() == kVictim) {
      fake_cuda_fail(rank.context, "cuMemcpyHtoDAsync", 1, kIllegalAddress);
    }
    ASSERT_FALSE(rank.run(sum.operation).ok());
    EXPECT_TRUE(mentions(rank.run(sum.operation), "rank 1 (process"));
    float host = 1;
    const auto on_host = rank.ranks.run({.count = 1, .in = &host, .out = &host});
    EXPECT_TRUE(mentions(on_host, "cuMemcpyHtoDAsync"));
  });
  EXPECT_EQ(fake_cuda_failures(), 1u);
}

TEST(DeviceFailureTest, AStreamThatNeverGetsOnIsNamed) {
  with_device_ranks(2,
                    [](DeviceRank& rank) {
                      FloatSum sum(rank, 8000, 1);
                      ASSERT_TRUE(rank.run(sum.operation).ok());
                      if (rank.ranks.rank() == kVictim) fake_cuda_hold(rank.stream);
                      const auto run = rank.run(sum.operation);
                      EXPECT_TRUE(mentions(run, "rank 1 (process"));
                      ASSERT_FALSE(run.ok());
                      EXPECT_EQ(run.error().code, Errc::deadline) << run.error().message;
                      if (rank.ranks.rank() == kVictim) fake_cuda_release(rank.stream);
                      ASSERT_EQ(fake_cuda_synchronize_all(rank.context), 0);
                    },
                    {.operation_ns = kSecond / 2});
}

TEST(DeviceFailureTest, ALibraryThatIsNotThere) {
  const auto absent = Driver::load("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Errc::unsupported);
  EXPECT_NE(absent.error().message.find("libcuda-that-is-not-there.so.1"), std::string::npos);
  EXPECT_NE(absent.error().hint.find("NVIDIA's driver"), std::string::npos);
  const auto other = Driver::load("libc.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("libc.so.6 has no function cuInit"), std::string::npos);
}

TEST(DeviceFailureTest, ADriverWithoutADevice) {
  fake_cuda_fail(nullptr, "cuInit", 1, 100);
  const auto loaded = Driver::load("libcuda.so.1");
  EXPECT_EQ(fake_cuda_failures(), 1u);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::unsupported);
  EXPECT_NE(loaded.error().message.find("cuInit: CUDA_ERROR_NO_DEVICE"), std::string::npos);
}

}  // namespace
}  // namespace ff::cuda

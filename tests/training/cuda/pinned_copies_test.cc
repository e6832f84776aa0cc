// Copies of a state from a device into pinned memory: their order in the stream of the program, its
// errors, and what is left when they end.
#include "training/cuda/pinned_copies.h"

#include "training/cuda/device_ranks.h"

namespace ff::cuda {
namespace {

constexpr size_t kStateBytes = 40'000;

class PinnedCopiesTest : public testing::Test {
 protected:
  void SetUp() override {
    (void)fake_reports();
    leaks_ = fake_cuda_leaks();
    fake_cuda_store(array_.at(), old_.data(), kStateBytes);
  }
  void TearDown() override {
    ASSERT_EQ(fake_cuda_synchronize_all(context_), 0);
    EXPECT_EQ(fake_reports(), "");
    EXPECT_EQ(fake_cuda_leaks(), leaks_);
  }

  std::unique_ptr<PinnedCopies> make() {
    auto made = PinnedCopies::make(fake_driver(), state_);
    EXPECT_TRUE(made.ok());
    return std::move(made).value();
  }
  CUstream stream() const { return static_cast<CUstream>(stream_); }

  SystemClock clock_;
  StopToken stop_{clock_};
  void* const context_ = fake_cuda_context();
  void* const stream_ = fake_cuda_stream(context_);
  const DeviceArray array_{context_, kStateBytes};
  const Bytes old_ = collective::random_bytes(1, kStateBytes);
  const Bytes newer_ = collective::random_bytes(2, kStateBytes);
  Bytes state_ = Bytes(kStateBytes);
  size_t leaks_ = 0;
};

TEST_F(PinnedCopiesTest, BetweenTheWorkOfTheStreamBeforeAndAfter) {
  for (uint64_t seed = 1; seed <= 10; seed++) {
    fake_cuda_seed(seed);
    const auto copies = make();
    fake_cuda_hold(stream_);
    fake_cuda_write(stream_, array_.at(), newer_.data(), kStateBytes);
    for (size_t at = 0; at < kStateBytes; at += 1000) {  // tensors
      ASSERT_TRUE(copies->copy(&state_[at], array_.at(at), 1000, stream()).ok());
    }
    ASSERT_TRUE(copies->copy(&state_[7], nullptr, 0, stream()).ok());
    fake_cuda_write(stream_, array_.at(), old_.data(), kStateBytes);
    fake_cuda_release(stream_);
    ASSERT_TRUE(copies->wait(stop_).ok());
    EXPECT_EQ(state_, newer_);
  }
}

TEST_F(PinnedCopiesTest, EveryCallThatFailsIsReported) {
  for (const char* const function :
       {"cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxPushCurrent", "cuPointerGetAttribute",
        "cuMemHostRegister", "cuMemcpyDtoHAsync", "cuStreamCreate", "cuStreamWaitEvent",
        "cuStreamIsCapturing", "cuEventCreate", "cuEventRecord", "cuEventQuery"}) {
    unsigned failures = 0;
    for (unsigned nth = 1; nth < 5; nth++) {
      fake_cuda_fail(context_, function, nth, 700);
      const auto run = [&]() -> Result<void> {
        FF_TRY(const auto copies, PinnedCopies::make(fake_driver(), state_));
        FF_TRY(copies->copy(state_.data(), array_.at(), kStateBytes, stream()));
        return copies->wait(stop_);
      }();
      if (fake_cuda_failures() == 0) {
        EXPECT_TRUE(run.ok());
        break;
      }
      // A push that fails at the end harms nobody.
      if (run.ok() && std::string(function) == "cuCtxPushCurrent") continue;
      ASSERT_FALSE(run.ok()) << function << ", call " << nth;
      EXPECT_NE(run.error().message.find(function), std::string::npos) << run.error().message;
      failures++;
    }
    EXPECT_GT(failures, 0u) << function;
  }
}

TEST_F(PinnedCopiesTest, CopiesThatCannotBe) {
  const auto copies = make();
  const auto refused = [&](const Result<void>& copied, const char* text) {
    ASSERT_FALSE(copied.ok()) << text;
    EXPECT_EQ(copied.error().code, Errc::usage);
    EXPECT_NE(copied.error().message.find(text), std::string::npos) << copied.error().message;
  };
  refused(copies->copy(&state_[1], array_.at(), kStateBytes, stream()), "beyond the memory");
  refused(copies->copy(state_.data() - 1, array_.at(), 1, stream()), "beyond the memory");
  refused(copies->copy(state_.data(), old_.data(), 1, stream()), "not memory of a CUDA device");
  fake_cuda_capture(stream_, 1);
  refused(copies->copy(state_.data(), array_.at(), 1, stream()), "captured into a graph");
  fake_cuda_capture(stream_, 0);
  void* const other = fake_cuda_context();
  refused(copies->copy(state_.data(), array_.at(), 1, stream()), "another CUDA context");
  fake_cuda_make_current(nullptr);
  refused(copies->copy(state_.data(), array_.at(), 1, stream()), "no CUDA context");
  EXPECT_NE(other, nullptr);
  fake_cuda_make_current(context_);
  EXPECT_TRUE(copies->copy(state_.data(), array_.at(), 1, stream()).ok());
  EXPECT_TRUE(copies->wait(stop_).ok());
}

TEST_F(PinnedCopiesTest, AWaitThatIsGivenUp) {
  {
    const auto copies = make();
    fake_cuda_hold(stream_);
    ASSERT_TRUE(copies->copy(state_.data(), array_.at(), kStateBytes, stream()).ok());
    stop_.request();
    const auto waited = copies->wait(stop_);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::interrupted);
    fake_cuda_release(stream_);
  }
  EXPECT_EQ(state_, old_);
}

TEST_F(PinnedCopiesTest, AnErrorOfTheDeviceIsReported) {
  {
    const auto copies = make();
    ASSERT_TRUE(copies->copy(state_.data(), array_.at(), 1000, stream()).ok());
    ASSERT_TRUE(copies->wait(stop_).ok());
    fake_cuda_fail(context_, "cuEventQuery", 1, 719);
    ASSERT_TRUE(copies->copy(state_.data(), array_.at(), 1000, stream()).ok());
    const auto waited = copies->wait(stop_);
    ASSERT_FALSE(waited.ok());
    EXPECT_NE(waited.error().message.find("cuEventQuery: CUDA_ERROR_LAUNCH_FAILED"),
              std::string::npos)
        << waited.error().message;
    EXPECT_NE(waited.error().hint.find("Xid"), std::string::npos);
  }
  EXPECT_EQ(fake_cuda_failures(), 1u);
}

}  // namespace
}  // namespace ff::cuda

// The fake driver finds what it is there to find: each test does one thing wrong, and its report
// says so; done right, there is none.
#include "training/cuda/fake_cuda.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "training/cuda/device_ranks.h"

namespace ff::cuda {
namespace {

constexpr size_t kFakeBytes = 100;

class FakeCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    (void)fake_reports();
    for (CUstream& stream : streams_) ASSERT_EQ(driver_.stream_create(&stream, 1), 0);
    ASSERT_EQ(driver_.event_create(&event_, 2), 0);
    ASSERT_EQ(driver_.host_register(host_.data(), host_.size(), 1), 0);
  }
  void TearDown() override {
    (void)fake_cuda_synchronize_all(context_);
    (void)driver_.event_destroy(event_);
    for (const CUstream stream : streams_) (void)driver_.stream_destroy(stream);
    (void)driver_.host_unregister(host_.data());
  }

  CUdeviceptr device() const { return reinterpret_cast<uintptr_t>(array_.at()); }
  static void expect_report(const std::string& what) {
    const std::string reports = fake_reports();
    EXPECT_NE(reports.find(what), std::string::npos) << reports;
  }

  const Driver& driver_ = fake_driver();
  void* const context_ = fake_cuda_context();
  const DeviceArray array_{context_, kFakeBytes};
  std::array<CUstream, 2> streams_ = {};
  CUevent event_ = nullptr;
  std::vector<std::byte> host_ = std::vector<std::byte>(kFakeBytes);
};

TEST_F(FakeCudaTest, CopiesInOneStreamAreOrdered) {
  const std::vector<std::byte> sevens(kFakeBytes, std::byte{7});
  fake_cuda_write(streams_[0], array_.at(), sevens.data(), kFakeBytes);
  ASSERT_EQ(driver_.copy_to_host_async(host_.data(), device(), kFakeBytes, streams_[0]), 0);
  ASSERT_EQ(fake_cuda_synchronize(streams_[0]), 0);
  EXPECT_EQ(host_, sevens);
  EXPECT_EQ(fake_reports(), "");
}

TEST_F(FakeCudaTest, CopiesInTwoStreamsNeedAnEvent) {
  fake_cuda_write(streams_[0], array_.at(), host_.data(), kFakeBytes);
  ASSERT_EQ(driver_.copy_to_host_async(host_.data(), device(), kFakeBytes, streams_[1]), 0);
  expect_report("nothing orders cuMemcpyDtoHAsync");
  ASSERT_EQ(fake_cuda_synchronize_all(context_), 0);
  fake_cuda_write(streams_[0], array_.at(), host_.data(), kFakeBytes);
  ASSERT_EQ(driver_.event_record(event_, streams_[0]), 0);
  ASSERT_EQ(driver_.stream_wait_event(streams_[1], event_, 0), 0);
  ASSERT_EQ(driver_.copy_to_host_async(host_.data(), device(), kFakeBytes, streams_[1]), 0);
  EXPECT_EQ(fake_reports(), "");
}

TEST_F(FakeCudaTest, TheHostWaitsForItsCopies) {
  ASSERT_EQ(driver_.copy_to_device_async(device(), host_.data(), kFakeBytes, streams_[0]), 0);
  (void)array_.load();
  expect_report("nothing orders a read of the test");
  ASSERT_EQ(driver_.event_record(event_, streams_[0]), 0);
  while (driver_.event_query(event_) == kNotReady) std::this_thread::yield();
  (void)array_.load();
  EXPECT_EQ(fake_reports(), "");
}

TEST_F(FakeCudaTest, TheSourceOfACopyMustNotChange) {
  fake_cuda_hold(streams_[0]);
  ASSERT_EQ(driver_.copy_to_device_async(device(), host_.data(), kFakeBytes, streams_[0]), 0);
  host_[5] = std::byte{1};
  fake_cuda_release(streams_[0]);
  ASSERT_EQ(fake_cuda_synchronize(streams_[0]), 0);
  expect_report("changed before it was copied");
}

TEST_F(FakeCudaTest, WhatIsDestroyedMustNotBeInUse) {
  fake_cuda_hold(streams_[0]);
  ASSERT_EQ(driver_.copy_to_device_async(device(), host_.data(), kFakeBytes, streams_[0]), 0);
  ASSERT_EQ(driver_.event_record(event_, streams_[0]), 0);
  (void)driver_.host_unregister(host_.data());
  expect_report("unpinned while a copy uses it");
  ASSERT_EQ(driver_.stream_wait_event(streams_[1], event_, 0), 0);
  (void)driver_.event_destroy(event_);
  expect_report("destroyed while a stream waits for it");
  fake_cuda_release(streams_[0]);
  ASSERT_EQ(fake_cuda_synchronize(streams_[0]), 0);
  EXPECT_NE(driver_.event_query(event_), 0);
  expect_report("an event that does not exist");
}

TEST_F(FakeCudaTest, OnlyPinnedMemoryIsCopied) {
  std::vector<std::byte> other(kFakeBytes);
  ASSERT_EQ(driver_.copy_to_host_async(other.data(), device(), kFakeBytes, streams_[0]), 0);
  ASSERT_EQ(fake_cuda_synchronize(streams_[0]), 0);
  expect_report("not pinned");
  EXPECT_NE(driver_.copy_to_host_async(host_.data(), device() + 1, kFakeBytes, streams_[0]), 0);
  expect_report("beyond memory of the device");
}

TEST_F(FakeCudaTest, TheHostDoesNotReachTheDevice) {
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  EXPECT_EQ(::write(pipe[1], array_.at(), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  for (const int end : pipe) ::close(end);
}

}  // namespace
}  // namespace ff::cuda

// Driving a queue: every operation once, each in a slot of its own, and an end at the first error.
#include "platform/io/drive.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "platform/io/buffers.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::io {
namespace {

constexpr size_t kDriveDepth = 4;
constexpr uint64_t kCount = 100;

class DriveTest : public testing::Test {
 protected:
  // Writes kCount blocks.
  Result<void> write_all() {
    auto file = disk_.open("/file", {.access = Access::read_write, .create = true}).value();
    auto queue = disk_.make_queue({.depth = kDriveDepth});
    return drive(
        *queue, kDriveDepth, [](uint64_t number) { return number < kCount; },
        [&](size_t slot, uint64_t number, IoQueue::Done done) {
          EXPECT_LT(slot, kDriveDepth);
          EXPECT_FALSE(busy_[slot]) << "a slot with two operations";
          busy_[slot] = true;
          begun_++;
          queue->write(*file, buffers_.slot(slot), number * kDirectAlign, std::move(done));
        },
        [&](size_t slot, uint64_t number) {
          busy_[slot] = false;
          ended_[number]++;
        });
  }

  sim::SimClock clock_;
  sim::SimDisk disk_{1, clock_};
  Buffers buffers_ = Buffers::make(kDriveDepth, kDirectAlign).value();
  std::vector<bool> busy_ = std::vector<bool>(kDriveDepth);
  std::vector<int> ended_ = std::vector<int>(kCount);
  uint64_t begun_ = 0;
};

TEST_F(DriveTest, EveryOperationEndsOnce) {
  ASSERT_TRUE(write_all().ok());
  EXPECT_EQ(ended_, std::vector<int>(kCount, 1));
}

TEST_F(DriveTest, TheFirstErrorEndsItAll) {
  disk_.fail_at(disk_.mutations() + 10, EIO);
  const auto driven = write_all();
  ASSERT_FALSE(driven.ok());
  EXPECT_NE(driven.error().message.find("/file"), std::string::npos) << driven.error().message;
  EXPECT_LE(begun_, 10 + kDriveDepth);
}

}  // namespace
}  // namespace ff::io

// run_queue_load(): runs every operation once, each in its own slot, and stops at the first error.
#include "platform/io/queue_load.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "platform/io/buffers.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::io {
namespace {

constexpr size_t kLoadDepth = 4;
constexpr uint64_t kCount = 100;

class QueueLoadTest : public testing::Test {
 protected:
  // Writes kCount blocks.
  Result<void> write_all() {
    auto file = disk_.open("/file", {.access = AccessMode::read_write, .create = true}).value();
    auto queue = disk_.make_queue({.depth = kLoadDepth});
    return run_queue_load(
        *queue, kLoadDepth, [](uint64_t number) { return number < kCount; },
        [&](size_t slot, uint64_t number, IoQueue::Done done) {
          EXPECT_LT(slot, kLoadDepth);
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
  Buffers buffers_ = Buffers::make(kLoadDepth, kDirectAlign).value();
  std::vector<bool> busy_ = std::vector<bool>(kLoadDepth);
  std::vector<int> ended_ = std::vector<int>(kCount);
  uint64_t begun_ = 0;
};

TEST_F(QueueLoadTest, EveryOperationEndsOnce) {
  ASSERT_TRUE(write_all().ok());
  EXPECT_EQ(ended_, std::vector<int>(kCount, 1));
}

TEST_F(QueueLoadTest, TheFirstErrorEndsItAll) {
  disk_.fail_at(disk_.mutations() + 10, EIO);
  const auto result = write_all();
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("/file"), std::string::npos) << result.error().message;
  EXPECT_LE(begun_, 10 + kLoadDepth);
}

}  // namespace
}  // namespace ff::io

// A task that was started again while an earlier attempt still runs: saves of the earlier one are
// refused.
#include "training/checkpoint/save/attempt_fence.h"

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/options.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

class FenceTest : public CheckpointTest {
 protected:
  SaveOptions options(uint64_t task, uint64_t number, uint64_t step) {
    SaveOptions options;
    options.step = step;
    options.identity.task = TaskAttempt{.scheduler = "c0ffee", .task = task, .number = number};
    return options;
  }
  Result<SaveReport> save_as(uint64_t task, uint64_t number, uint64_t step) {
    write_whole(path("state"), noise(step, 100'000));
    return save({path("state")}, options(task, number, step));
  }
  std::vector<uint64_t> steps() {
    return committed_steps(disk_, Store::open(disk_, store()).value(), "default").value();
  }
  size_t marks() {
    return disk_.list(Store::open(disk_, store()).value().tasks_dir("default"))->size();
  }
};

TEST_F(FenceTest, AnEarlierAttemptIsRefused) {
  FF_ASSERT_OK(save_as(12, 1, 10));
  FF_ASSERT_OK(save_as(12, 1, 20));
  FF_ASSERT_OK(save_as(12, 2, 21));
  const auto refused = save_as(12, 1, 30);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::refused);
  EXPECT_NE(refused.error().message.find("attempt 2 of task 12"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(steps(), (std::vector<uint64_t>{10, 20, 21}));
  FF_ASSERT_OK(save_as(12, 10, 40));
  EXPECT_FALSE(save_as(12, 9, 41).ok());
  // Other tasks, and processes outside of tasks, are not affected.
  FF_ASSERT_OK(save_as(1, 1, 42));
  FF_ASSERT_OK(save_as(120, 1, 43));
  write_whole(path("state"), noise(44, 1000));
  SaveOptions by_hand;
  by_hand.step = 44;
  FF_ASSERT_OK(save({path("state")}, by_hand));
  EXPECT_EQ(marks(), 3u);
}

TEST_F(FenceTest, APausedSavePublishesNothing) {
  FF_ASSERT_OK(save_as(12, 1, 10));
  bool entered = false;
  StreamInput stream{.name = "state", .read = [&](ByteSpan) -> Result<std::optional<size_t>> {
                       if (std::exchange(entered, true)) return std::optional<size_t>(0);
                       const TaskAttempt next{.scheduler = "c0ffee", .task = 12, .number = 2};
                       const auto there = Store::open(disk_, store()).value();
                       EXPECT_TRUE(register_attempt(disk_, there, "default", next).ok());
                       return std::optional<size_t>(1);
                     }};
  Context context = this->context();
  const auto late = checkpoint::save(context, store(), {.paths = {}, .stream = std::move(stream)},
                                     options(12, 1, 11));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::refused);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{10}));
}

// The later attempt registers at any point of the earlier one's registration.
TEST_F(FenceTest, ALaterMarkStaysAtEveryPoint) {
  uint64_t points = 0;
  for (uint64_t point = 0; point <= points; point++) {
    SCOPED_TRACE(point);
    fs::remove_all(store());
    FF_ASSERT_OK(save_as(12, 1, 10));
    const Store there = Store::open(disk_, store()).value();
    const auto attempt = [](uint64_t number) {
      return TaskAttempt{.scheduler = "c0ffee", .task = 12, .number = number};
    };
    HookDisk disk(disk_);
    uint64_t steps = 0;
    disk.hook = [&](uint64_t) {
      if (steps++ == point) FF_ASSERT_OK(register_attempt(disk_, there, "default", attempt(3)));
    };
    (void)register_attempt(disk, there, "default", attempt(2));
    points = std::max(points, steps);
    if (steps <= point) break;
    FF_ASSERT_OK(check_attempt(disk_, there, "default", attempt(3)));
    EXPECT_FALSE(check_attempt(disk_, there, "default", attempt(2)).ok());
  }
  EXPECT_GT(points, 4u);
}

TEST_F(FenceTest, ShardsAreRefusedToo) {
  write_whole(path("state"), noise(1, 1000));
  SaveOptions shard = options(12, 1, 10);
  shard.world = 2;
  shard.attempt = "12.1";
  FF_ASSERT_OK(save({path("state")}, shard));
  FF_ASSERT_OK(save_as(12, 2, 11));
  shard.rank = 1;
  const auto late = save({path("state")}, shard);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::refused);
  EXPECT_EQ(steps(), (std::vector<uint64_t>{11}));
}

}  // namespace
}  // namespace ff::checkpoint

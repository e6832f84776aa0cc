// Virtual time: sleeps, deadlines, their order, and clocks that drift.
#include "platform/sim/sim_world.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "platform/base/fd_watch.h"
#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"

namespace ff::sim {
namespace {

class SimWorldTest : public testing::Test {
 protected:
  SimWorld world_;
  SimLoop& loop_ = world_.loop();
};

Task<void> ticks(Loop& loop, int id, uint64_t seed, std::string& trace) {
  SeededRng rng(seed + static_cast<uint64_t>(id));
  for (int i = 0; i < 100; i++) {
    (void)co_await sleep_for(loop, static_cast<int64_t>(rng.below(60 * kSecond)));
    trace += fmt::format("{}@{};", id, loop.now_ns());
  }
}

std::string run_ticks(uint64_t seed) {
  SimWorld world;
  SimLoop& loop = world.loop();
  std::string trace;
  Gate gate(loop);
  for (int id = 0; id < 20; id++) gate.spawn(ticks(loop, id, seed, trace));
  loop.run();
  EXPECT_EQ(gate.running(), 0u);
  return trace;
}

TEST_F(SimWorldTest, EqualSeedsGiveEqualTraces) {
  EXPECT_EQ(run_ticks(1), run_ticks(1));
  EXPECT_NE(run_ticks(1), run_ticks(2));
}

Task<void> note_after(Loop& loop, int64_t ns, int id, std::vector<int>& order) {
  (void)co_await sleep_for(loop, ns);
  order.push_back(id);
}

TEST_F(SimWorldTest, EqualTimesKeepTheirOrder) {
  std::vector<int> order;
  Gate gate(loop_);
  gate.spawn(note_after(loop_, 2, 1, order));
  gate.spawn(note_after(loop_, 1, 2, order));
  gate.spawn(note_after(loop_, 2, 3, order));
  gate.spawn(note_after(loop_, 0, 4, order));
  loop_.run();
  EXPECT_EQ(order, (std::vector<int>{4, 2, 1, 3}));
  EXPECT_EQ(loop_.now_ns(), 2);
}

TEST_F(SimWorldTest, RunUntilStopsInBetween) {
  std::vector<int> order;
  Gate gate(loop_);
  gate.spawn(note_after(loop_, 5 * kSecond, 1, order));
  world_.run_until(3 * kSecond);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(loop_.now_ns(), 3 * kSecond);
  world_.run_until(5 * kSecond);
  EXPECT_EQ(order.size(), 1u);
}

Task<Result<int>> sleep_then(Loop& loop, int64_t ns, int value) {
  FF_CO_TRY(co_await sleep_for(loop, ns));
  co_return value;
}

TEST_F(SimWorldTest, ADeadlineEndsTheTask) {
  auto early = run_task(loop_, with_deadline(loop_, 10 * kSecond, "asking x: no answer",
                                             sleep_then(loop_, kSecond, 5)));
  EXPECT_EQ(*early, 5);
  auto late = run_task(loop_, with_deadline(loop_, loop_.now_ns() + kSecond, "asking x: no answer",
                                            sleep_then(loop_, 60 * kSecond, 5)));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::deadline);
  EXPECT_EQ(late.error().message, "asking x: no answer");
  EXPECT_EQ(loop_.now_ns(), 2 * kSecond);
}

Task<void> keep_result(Task<Result<int>> task, std::optional<Result<int>>& result) {
  result = co_await std::move(task);
}

TEST_F(SimWorldTest, AnOuterCancelReachesThroughDeadlines) {
  std::optional<Result<int>> result;
  Gate gate(loop_);
  gate.spawn(keep_result(with_deadline(loop_, 50 * kSecond, "outer",
                                       with_deadline(loop_, 40 * kSecond, "inner",
                                                     sleep_then(loop_, 60 * kSecond, 1))),
                         result));
  world_.run_until(kSecond);
  gate.cancellation().request(fail(Errc::interrupted, "enough"));
  world_.run_until(2 * kSecond);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->error().message, "enough");
}

TEST_F(SimWorldTest, ClocksDrift) {
  SimLoop fast(world_, {.drift_ppm = 100'000});
  SimLoop slow(world_, {.drift_ppm = -100'000, .wall_offset_ns = -5 * kSecond});
  std::vector<int> order;
  Gate fast_gate(fast);
  Gate slow_gate(slow);
  Gate gate(loop_);
  gate.spawn(note_after(loop_, 10 * kSecond, 1, order));
  fast_gate.spawn(note_after(fast, 10 * kSecond, 2, order));
  slow_gate.spawn(note_after(slow, 10 * kSecond, 3, order));
  world_.run_until(100 * kSecond);
  EXPECT_EQ(order, (std::vector<int>{2, 1, 3}));
  EXPECT_EQ(fast.now_ns(), 110 * kSecond);
  EXPECT_EQ(slow.now_ns(), 90 * kSecond);
  EXPECT_EQ(slow.clock().wall_ns(), world_.clock().wall_ns() - 5 * kSecond);
  for (const int64_t ppm : {-99'999, -1, 1, 7, 99'999}) {
    SkewedClock clock(world_.clock(), {.drift_ppm = ppm});
    for (const int64_t ns : {int64_t{0}, int64_t{1}, 123'456'789 * kSecond, 7 * kSecond + 13}) {
      SimClock truth;
      truth.advance(clock.true_ns(ns));
      EXPECT_GE(SkewedClock(truth, {.drift_ppm = ppm}).steady_ns(), ns);
      if (clock.true_ns(ns) == 0) continue;
      SimClock before;
      before.advance(clock.true_ns(ns) - 1);
      EXPECT_LT(SkewedClock(before, {.drift_ppm = ppm}).steady_ns(), ns);
    }
  }
}

TEST_F(SimWorldTest, APausedProcessDoesNothingAndThenWhatIsDue) {
  SimLoop process(world_);
  std::vector<int> order;
  Gate process_gate(process);
  Gate gate(loop_);
  process_gate.spawn(note_after(process, kSecond, 1, order));
  gate.spawn(note_after(loop_, 2 * kSecond, 2, order));
  world_.run_until(1);
  process.set_paused(true);
  world_.run_until(3 * kSecond);
  EXPECT_EQ(order, std::vector<int>{2});
  EXPECT_EQ(process.now_ns(), 3 * kSecond);
  process.set_paused(false);
  world_.run_until(3 * kSecond);
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST_F(SimWorldTest, WatchesNothing) { EXPECT_EQ(loop_.watch(0).error().code, Errc::unsupported); }

}  // namespace
}  // namespace ff::sim

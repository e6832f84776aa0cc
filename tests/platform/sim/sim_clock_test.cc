// Simulated time advances only by sleeping and by advance().
#include "platform/sim/sim_clock.h"

#include <gtest/gtest.h>

#include "platform/base/stop_token.h"

namespace ff::sim {
namespace {

TEST(SimClockTest, SleepingAdvances) {
  SimClock clock;
  EXPECT_EQ(clock.wall_ns(), SimClock::kStartNs);
  EXPECT_EQ(clock.steady_ns(), 0);
  clock.sleep_ns(5);
  clock.advance(7);
  clock.sleep_ns(-100);
  EXPECT_EQ(clock.steady_ns(), 12);
  EXPECT_EQ(clock.wall_ns(), SimClock::kStartNs + 12);
}

TEST(SimClockTest, TheWallClockCanBeSet) {
  SimClock clock(1000);
  clock.advance(10);
  clock.set_wall(500);
  clock.advance(10);
  EXPECT_EQ(clock.wall_ns(), 510);
  EXPECT_EQ(clock.steady_ns(), 20);
}

TEST(SimClockTest, DeadlinesPassInNoTime) {
  SimClock clock;
  const int64_t hour_ns = 3600 * kSecond;
  const StopToken stop(clock, hour_ns);
  EXPECT_TRUE(stop.check().ok());
  const auto slept = stop.sleep_ns(2 * hour_ns);
  ASSERT_FALSE(slept.ok());
  EXPECT_EQ(slept.error().code, Errc::deadline);
}

}  // namespace
}  // namespace ff::sim

// SystemClock: it agrees with the clocks of the kernel, and a sleep takes at least its duration.
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace ff {
namespace {

TEST(SystemClock, WallIsTheEpochAndSteadyGrows) {
  SystemClock clock;
  const int64_t before = std::time(nullptr);
  const int64_t wall = clock.wall_ns();
  const int64_t after = std::time(nullptr);
  // time() may lag by a tick.
  EXPECT_GE(wall / kSecond, before - 1);
  EXPECT_LE(wall / kSecond, after + 1);

  int64_t last = clock.steady_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.steady_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, SleepsAtLeastTheTimeAsked) {
  SystemClock clock;
  const int64_t begin = clock.steady_ns();
  clock.sleep_ns(2 * kMillisecond);
  EXPECT_GE(clock.steady_ns() - begin, 2 * kMillisecond);
  clock.sleep_ns(0);
  clock.sleep_ns(-5);  // returns at once
}

}  // namespace
}  // namespace ff

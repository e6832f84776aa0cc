// StopToken on a scripted clock: requests, deadlines and sleeps that end early.
#include "platform/base/stop_token.h"
#include "platform/base/clock.h"

#include <gtest/gtest.h>

#include <functional>

namespace ff {
namespace {

// A clock whose time advances only in sleep_ns().
class ScriptedClock final : public Clock {
 public:
  int64_t wall_ns() override { return now; }
  int64_t steady_ns() override { return now; }
  void sleep_ns(int64_t ns) override {
    longest = std::max(longest, ns);
    now += ns;
    if (on_sleep) on_sleep();
  }

  int64_t now = 1000 * kMillisecond;
  int64_t longest = 0;
  std::function<void()> on_sleep;
};

TEST(StopToken, NothingToReportAtFirst) {
  ScriptedClock clock;
  const StopToken stop(clock);
  EXPECT_TRUE(stop.check().ok());
  EXPECT_FALSE(stop.requested());
  EXPECT_EQ(&stop.clock(), &clock);
  clock.now += int64_t{1} << 60;
  EXPECT_TRUE(stop.check().ok());
}

TEST(StopToken, ReportsTheRequestAndTheDeadline) {
  ScriptedClock clock;
  StopToken stop(clock, clock.now + 10 * kMillisecond);
  EXPECT_TRUE(stop.check().ok());
  clock.now += 10 * kMillisecond;
  ASSERT_FALSE(stop.check().ok());
  EXPECT_EQ(stop.check().error().code, Errc::deadline);
  stop.request();
  ASSERT_FALSE(stop.check().ok());
  EXPECT_EQ(stop.check().error().code, Errc::interrupted);
}

TEST(StopToken, SleepsTheWholeTimeInShortSlices) {
  ScriptedClock clock;
  const StopToken stop(clock);
  const int64_t begin = clock.now;
  EXPECT_TRUE(stop.sleep_ns(1050 * kMillisecond).ok());
  EXPECT_EQ(clock.now - begin, 1050 * kMillisecond);
  EXPECT_LE(clock.longest, 100 * kMillisecond);
}

TEST(StopToken, SleepEndsOnRequestAndOnDeadline) {
  ScriptedClock clock;
  const int64_t begin = clock.now;
  StopToken stop(clock);
  clock.on_sleep = [&] { stop.request(); };
  const auto interrupted = stop.sleep_ns(60'000 * kMillisecond);
  ASSERT_FALSE(interrupted.ok());
  EXPECT_EQ(interrupted.error().code, Errc::interrupted);
  EXPECT_LE(clock.now - begin, 100 * kMillisecond);

  clock.on_sleep = nullptr;
  const StopToken late(clock, clock.now + 250 * kMillisecond);
  const auto deadline = late.sleep_ns(60'000 * kMillisecond);
  ASSERT_FALSE(deadline.ok());
  EXPECT_EQ(deadline.error().code, Errc::deadline);
}

}  // namespace
}  // namespace ff

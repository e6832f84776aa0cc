// /proc/stat: which columns are work, which are stolen, and that a meter counts real work.
#include "platform/io/cpu_use.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "platform/base/clock.h"

namespace ff::io {
namespace {

TEST(CpuUse, ReadsTheFirstLineOfProcStat) {
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto use = parse_cpu_use("cpu  100 20 3 4000 50 6 7 80 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n");
  ASSERT_TRUE(use);
  EXPECT_DOUBLE_EQ(use->programs, 123 / ticks);
  EXPECT_DOUBLE_EQ(use->interrupts, 13 / ticks);
  EXPECT_DOUBLE_EQ(use->stolen, 80 / ticks);
  EXPECT_DOUBLE_EQ(use->busy(), 136 / ticks);
  for (const char* text :
       {"", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu0 1 2 3 4 5 6 7 8"}) {
    EXPECT_FALSE(parse_cpu_use(text)) << text;
  }
}

TEST(CpuUse, AMeterCountsTheWorkOfThisProcess) {
  const CpuMeter meter;
  const int64_t began_ns = thread_cpu_ns();
  constexpr int64_t kWorkNs = 100 * kMillisecond;
  while (thread_cpu_ns() - began_ns < kWorkNs) {
  }
  EXPECT_GE(meter.seconds(), to_seconds(kWorkNs) / 2);  // the kernel counts by ticks
}

}  // namespace
}  // namespace ff::io

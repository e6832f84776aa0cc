// The hedge policy: delay of a hedged read, and its budget.
#include "storage/chain/hedge_policy.h"

#include <gtest/gtest.h>

namespace ff::chain {
namespace {

constexpr uint64_t kBytes = 4 * kKiB;

TEST(HedgePolicy, KnowsNothingAtFirst) {
  HedgePolicy hedge;
  for (size_t i = 0; i < HedgePolicy::kMinSamples - 1; i++) {
    EXPECT_FALSE(hedge.delay_ns(kBytes)) << i;
    hedge.record(kBytes, 5 * kMillisecond);
  }
  hedge.record(kBytes, 5 * kMillisecond);
  EXPECT_EQ(hedge.delay_ns(kBytes), 5 * kMillisecond);
  EXPECT_FALSE(hedge.delay_ns(kMiB)) << "of that size nothing is known";
}

TEST(HedgePolicy, LateIsWhatOneInAHundredIs) {
  HedgePolicy hedge;
  for (size_t i = 0; i < 2 * HedgePolicy::kWindow; i++) {
    hedge.record(kBytes, static_cast<int64_t>(1 + i % 100) * kMillisecond);
  }
  const int64_t delay_ns = hedge.delay_ns(kBytes).value();
  EXPECT_GE(delay_ns, 98 * kMillisecond);
  EXPECT_LE(delay_ns, 100 * kMillisecond);
  for (size_t i = 0; i < HedgePolicy::kWindow; i++) hedge.record(kBytes, kMicrosecond);
  EXPECT_EQ(hedge.delay_ns(kBytes), HedgePolicy::kMinDelayNs) << "what was before is forgotten";
}

TEST(HedgePolicy, IsSeldom) {
  HedgePolicy hedge;
  for (uint64_t i = 0; i < HedgePolicy::kMaxBurst; i++) EXPECT_TRUE(hedge.try_acquire()) << i;
  EXPECT_FALSE(hedge.try_acquire());
  uint64_t taken = 0;
  for (uint64_t i = 0; i < 100 * HedgePolicy::kReadsPerHedge; i++) {
    hedge.record(kBytes, kMillisecond);
    taken += hedge.try_acquire() ? 1 : 0;
  }
  EXPECT_EQ(taken, 100u);
}

}  // namespace
}  // namespace ff::chain

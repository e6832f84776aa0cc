// When a read counts as late, and how seldom one is asked twice.
#include "storage/chain/hedge.h"

#include <gtest/gtest.h>

namespace ff::chain {
namespace {

constexpr uint64_t kBytes = 4 * kKiB;

TEST(Hedge, KnowsNothingAtFirst) {
  Hedge hedge;
  for (size_t i = 0; i < Hedge::kKnown - 1; i++) {
    EXPECT_FALSE(hedge.late_ns(kBytes)) << i;
    hedge.took(kBytes, 5 * kMillisecond);
  }
  hedge.took(kBytes, 5 * kMillisecond);
  EXPECT_EQ(hedge.late_ns(kBytes), 5 * kMillisecond);
  EXPECT_FALSE(hedge.late_ns(kMiB)) << "of that size nothing is known";
}

TEST(Hedge, LateIsWhatOneInAHundredIs) {
  Hedge hedge;
  for (size_t i = 0; i < 2 * Hedge::kRemembered; i++) {
    hedge.took(kBytes, static_cast<int64_t>(1 + i % 100) * kMillisecond);
  }
  const int64_t late_ns = hedge.late_ns(kBytes).value();
  EXPECT_GE(late_ns, 98 * kMillisecond);
  EXPECT_LE(late_ns, 100 * kMillisecond);
  for (size_t i = 0; i < Hedge::kRemembered; i++) hedge.took(kBytes, kMicrosecond);
  EXPECT_EQ(hedge.late_ns(kBytes), Hedge::kLeastNs) << "what was before is forgotten";
}

TEST(Hedge, IsSeldom) {
  Hedge hedge;
  for (uint64_t i = 0; i < Hedge::kInARow; i++) EXPECT_TRUE(hedge.take()) << i;
  EXPECT_FALSE(hedge.take());
  uint64_t taken = 0;
  for (uint64_t i = 0; i < 100 * Hedge::kOneIn; i++) {
    hedge.took(kBytes, kMillisecond);
    taken += hedge.take() ? 1 : 0;
  }
  EXPECT_EQ(taken, 100u);
}

}  // namespace
}  // namespace ff::chain

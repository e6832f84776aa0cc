// Buffers: slots are aligned, disjoint and writable, and owned by one object.
#include "platform/io/buffers.h"

#include <gtest/gtest.h>

#include <cstring>

#include "platform/io/disk.h"

namespace ff::io {
namespace {

TEST(BuffersTest, SlotsAreAlignedAndApart) {
  const auto buffers = Buffers::make(3, 12 * kKiB).value();
  EXPECT_EQ(buffers.count(), 3u);
  EXPECT_EQ(buffers.all().size(), 36 * kKiB);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.all().data()) % (2 * kMiB), 0u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buffers.slot(i).size(), 12 * kKiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers.slot(i).data()) % kDirectAlign, 0u);
    std::memset(buffers.slot(i).data(), static_cast<int>(i + 1), buffers.slot(i).size());
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(buffers.slot(i).front(), std::byte(i + 1));
    EXPECT_EQ(buffers.slot(i).back(), std::byte(i + 1));
  }
}

TEST(BuffersTest, MovesKeepTheMemory) {
  auto first = Buffers::make(1, kDirectAlign).value();
  first.slot(0)[0] = std::byte{7};
  Buffers second(std::move(first));
  EXPECT_EQ(second.slot(0)[0], std::byte{7});
  auto third = Buffers::make(2, kDirectAlign).value();
  third = std::move(second);
  EXPECT_EQ(third.count(), 1u);
  EXPECT_EQ(third.slot(0)[0], std::byte{7});
}

TEST(BuffersTest, MoreMemoryThanThereIsIsAnError) {
  EXPECT_FALSE(Buffers::make(1, uint64_t{1} << 60).ok());
}

TEST(BuffersTest, MisuseStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto buffers = Buffers::make(1, kDirectAlign).value();
  EXPECT_DEATH((void)buffers.slot(1), "check failed");
  EXPECT_DEATH((void)Buffers::make(1, 100), "check failed");
}

}  // namespace
}  // namespace ff::io

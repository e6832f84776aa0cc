// Bitmaps of blocks: unique allocation, lowest free block first, release of empty groups.
#include "storage/chunk/block_bitmap.h"

#include <gtest/gtest.h>

#include <set>

#include "platform/base/rng.h"

namespace ff::chunk {
namespace {

constexpr SizeClass kOf = 8;  // blocks of 16 MiB, 16 in a group
const uint64_t kGroup = group_blocks(kOf);

TEST(BlockBitmapTest, GivesTheLowestFreeBlock) {
  BlockBitmap space(kOf);
  EXPECT_FALSE(space.allocate().has_value());
  EXPECT_EQ(space.first_unreserved_group(), 0u);
  space.reserve_group(0);
  for (uint64_t i = 0; i < kGroup; ++i) EXPECT_EQ(space.allocate(), i);
  EXPECT_FALSE(space.allocate().has_value());
  space.free(5);
  space.free(3);
  EXPECT_EQ(space.allocate(), 3u);
  EXPECT_EQ(space.allocate(), 5u);
  EXPECT_EQ(space.used_blocks(), kGroup);
  EXPECT_EQ(space.reserved_bytes(), group_bytes(kOf));
}

TEST(BlockBitmapTest, TakesWhatTheMetadataNamesOnce) {
  BlockBitmap space(kOf);
  EXPECT_TRUE(space.mark_used(3 * kGroup + 1));
  EXPECT_FALSE(space.mark_used(3 * kGroup + 1));
  EXPECT_TRUE(space.is_reserved(3));
  EXPECT_EQ(space.first_unreserved_group(), 0u);
  EXPECT_EQ(space.allocate(), 3 * kGroup);
}

TEST(BlockBitmapTest, EmptyGroupsAreSpareButForOne) {
  BlockBitmap space(kOf);
  for (uint64_t group = 0; group < 4; ++group) space.reserve_group(group);
  EXPECT_EQ(space.empty_groups(), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_TRUE(space.mark_used(2 * kGroup));
  EXPECT_EQ(space.empty_groups(), (std::vector<uint64_t>{3, 1}));
  space.release_group(3);
  space.release_group(1);
  EXPECT_TRUE(space.empty_groups().empty());
  EXPECT_EQ(space.first_unreserved_group(), 1u);
}

TEST(BlockBitmapTest, NeverGivesABlockTwice) {
  SeededRng rng(1);
  BlockBitmap space(SizeClass{0});
  std::set<uint64_t> used;
  for (int i = 0; i < 20000; ++i) {
    if (used.empty() || rng.below(5) < 3) {
      auto number = space.allocate();
      if (!number) {
        space.reserve_group(space.first_unreserved_group());
        number = space.allocate();
      }
      EXPECT_TRUE(used.insert(*number).second);
    } else {
      const auto at = std::next(used.begin(), static_cast<long>(rng.below(used.size())));
      space.free(*at);
      used.erase(at);
    }
    if (rng.below(500) == 0) {
      for (const uint64_t group : space.empty_groups()) space.release_group(group);
    }
  }
  EXPECT_EQ(space.used_blocks(), used.size());
}

}  // namespace
}  // namespace ff::chunk

// Bitmaps of blocks: no block twice, freed ones first, empty groups to give back.
#include "storage/chunk/space.h"

#include <gtest/gtest.h>

#include <set>

#include "platform/base/rng.h"

namespace ff::chunk {
namespace {

constexpr Class kOf = 8;  // blocks of 16 MiB, 16 in a group
const uint64_t kGroup = group_blocks(kOf);

TEST(ChunkSpace, GivesTheLowestFreeBlock) {
  Space space(kOf);
  EXPECT_FALSE(space.allocate().has_value());
  EXPECT_EQ(space.next_group(), 0u);
  space.reserve(0);
  for (uint64_t i = 0; i < kGroup; ++i) EXPECT_EQ(space.allocate(), i);
  EXPECT_FALSE(space.allocate().has_value());
  space.free(5);
  space.free(3);
  EXPECT_EQ(space.allocate(), 3u);
  EXPECT_EQ(space.allocate(), 5u);
  EXPECT_EQ(space.used_blocks(), kGroup);
  EXPECT_EQ(space.reserved_bytes(), group_bytes(kOf));
}

TEST(ChunkSpace, TakesWhatTheMetadataNamesOnce) {
  Space space(kOf);
  EXPECT_TRUE(space.take(3 * kGroup + 1));
  EXPECT_FALSE(space.take(3 * kGroup + 1));
  EXPECT_TRUE(space.reserved(3));
  EXPECT_EQ(space.next_group(), 0u);
  EXPECT_EQ(space.allocate(), 3 * kGroup);
}

TEST(ChunkSpace, EmptyGroupsAreSpareButForOne) {
  Space space(kOf);
  for (uint64_t group = 0; group < 4; ++group) space.reserve(group);
  EXPECT_EQ(space.spare_groups(), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_TRUE(space.take(2 * kGroup));
  EXPECT_EQ(space.spare_groups(), (std::vector<uint64_t>{3, 1}));
  space.drop(3);
  space.drop(1);
  EXPECT_TRUE(space.spare_groups().empty());
  EXPECT_EQ(space.next_group(), 1u);
}

TEST(ChunkSpace, NeverGivesABlockTwice) {
  SeededRng rng(1);
  Space space(Class{0});
  std::set<uint64_t> used;
  for (int i = 0; i < 20000; ++i) {
    if (used.empty() || rng.below(5) < 3) {
      auto number = space.allocate();
      if (!number) {
        space.reserve(space.next_group());
        number = space.allocate();
      }
      EXPECT_TRUE(used.insert(*number).second);
    } else {
      const auto at = std::next(used.begin(), static_cast<long>(rng.below(used.size())));
      space.free(*at);
      used.erase(at);
    }
    if (rng.below(500) == 0) {
      for (const uint64_t group : space.spare_groups()) space.drop(group);
    }
  }
  EXPECT_EQ(space.used_blocks(), used.size());
}

}  // namespace
}  // namespace ff::chunk

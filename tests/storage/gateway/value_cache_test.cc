// The values that were read last: versions, and what is dropped.
#include "storage/gateway/value_cache.h"

#include <gtest/gtest.h>

namespace ff::gateway {
namespace {

constexpr size_t kBytes = 100'000;

TEST(ValueCacheTest, OnlyTheSameVersion) {
  ValueCache cache(kBytes);
  EXPECT_EQ(cache.find("k", 1), nullptr);
  cache.put("k", 1, "one");
  EXPECT_EQ(*cache.find("k", 1), "one");
  EXPECT_EQ(cache.find("k", 2), nullptr);
  cache.put("k", 2, "two");
  EXPECT_EQ(*cache.find("k", 2), "two");
  EXPECT_EQ(cache.find("k", 1), nullptr);
  cache.clear();
  EXPECT_EQ(cache.find("k", 2), nullptr);
  EXPECT_EQ(cache.bytes(), 0u);
}

TEST(ValueCacheTest, TheOldestGoFirst) {
  ValueCache cache(kBytes);
  const std::string value(1000, 'v');
  for (int i = 0; i < 1000; i++) {
    cache.put(std::to_string(i), 1, value);
    ASSERT_NE(cache.find("0", 1), nullptr) << i;
    ASSERT_LE(cache.bytes(), kBytes);
  }
  EXPECT_EQ(cache.find("1", 1), nullptr);
  EXPECT_NE(cache.find("999", 1), nullptr);
  EXPECT_NE(cache.find("950", 1), nullptr);
  EXPECT_GT(cache.bytes(), kBytes / 2);
}

TEST(ValueCacheTest, LargeValuesAreNotKept) {
  ValueCache cache(kBytes);
  cache.put("k", 1, "small");
  cache.put("k", 2, std::string(kBytes / 10, 'v'));
  EXPECT_EQ(cache.find("k", 2), nullptr);
  EXPECT_EQ(cache.bytes(), 0u);
  ValueCache none(0);
  none.put("k", 1, "v");
  EXPECT_EQ(none.find("k", 1), nullptr);
}

}  // namespace
}  // namespace ff::gateway

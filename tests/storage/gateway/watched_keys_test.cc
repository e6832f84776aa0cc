// The number of changes of a key counts from the first WATCH to the end of the last one.
#include "storage/gateway/watched_keys.h"

#include <gtest/gtest.h>

namespace ff::gateway {
namespace {

TEST(WatchedKeys, CountsChangesWhileSomebodyWatches) {
  WatchedKeys keys;
  keys.note_change("a");
  auto first = keys.watch("a");
  EXPECT_EQ(*first, 0u);
  keys.note_change("a");
  keys.note_change("b");
  auto second = keys.watch("a");
  EXPECT_EQ(*first, 1u);
  EXPECT_EQ(*second, 1u);
  EXPECT_EQ(keys.keys(), 1u);
  first.reset();
  keys.note_change("a");
  EXPECT_EQ(*second, 2u);
  second.reset();
  EXPECT_EQ(keys.keys(), 0u);
  EXPECT_EQ(*keys.watch("a"), 0u);
}

}  // namespace
}  // namespace ff::gateway

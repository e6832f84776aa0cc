// The work queue of a host: items are claimed in order, finished in any, and a slow thread keeps
// its item while others finish many.
#include "training/collective/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

namespace ff::collective {
namespace {

TEST(WorkQueueTest, ASlowThreadKeepsItsItem) {
  std::vector<char> memory(WorkQueue::bytes() + 64, 0);
  void* place = memory.data();
  size_t space = memory.size();
  ASSERT_NE(std::align(64, WorkQueue::bytes(), place, space), nullptr);
  WorkQueue queue(place);
  std::atomic<uint64_t> current = 0;
  ASSERT_TRUE(queue.has_room());
  const uint64_t slow = queue.push({.number = 7});
  ASSERT_EQ(queue.claim(current)->item.number, 7u);
  for (uint64_t i = 1; i < kWorkItemsMax; i++) {
    ASSERT_TRUE(queue.has_room());
    const uint64_t ticket = queue.push({.number = 100 + i});
    const auto claimed = queue.claim(current);
    ASSERT_TRUE(claimed.has_value());
    EXPECT_EQ(claimed->ticket, ticket);
    EXPECT_EQ(claimed->item.number, 100 + i);
    EXPECT_EQ(current.load(), 101 + i);
    queue.finish(ticket);
    EXPECT_TRUE(queue.is_finished(ticket));
  }
  EXPECT_FALSE(queue.has_room());  // the next item would have the place of the slow thread's one
  EXPECT_FALSE(queue.is_finished(slow));
  EXPECT_FALSE(queue.claim(current).has_value());
  queue.finish(slow);
  EXPECT_TRUE(queue.has_room());
  queue.push({.number = 8});
  EXPECT_EQ(queue.claim(current)->item.number, 8u);
}

}  // namespace
}  // namespace ff::collective

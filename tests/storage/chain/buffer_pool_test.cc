// The buffer pool: buffers do not overlap, halves merge, and the heap is the fallback.
#include "storage/chain/buffer_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "platform/base/rng.h"

namespace ff::chain {
namespace {

constexpr uint64_t kArena = 2 * chunk::kChunkMax;

class MemoryTest : public testing::Test {
 protected:
  bool inside(ByteSpan span) const {
    return span.data() >= arena_.span().data() &&
           span.data() + span.size() <= arena_.span().data() + kArena;
  }
  chunk::AlignedBuffer arena_{kArena};
  BufferPool memory_{arena_.span()};
};

TEST_F(MemoryTest, NothingOverlaps) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(seed);
  SeededRng rng(seed);
  std::vector<BufferPool::Buffer> held;
  for (int step = 0; step < 20000; step++) {
    if (held.size() > 60 || (!held.empty() && rng.below(2) == 0)) {
      std::swap(held[rng.below(held.size())], held.back());
      held.pop_back();
    } else {
      const uint64_t size = 1 + rng.below(uint64_t{1} << rng.below(27));
      held.push_back(memory_.allocate(size));
      ASSERT_EQ(held.back().span().size(), size);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(held.back().span().data()) % io::kDirectAlign, 0u);
    }
    std::map<const std::byte*, const std::byte*> ends;
    for (const BufferPool::Buffer& bytes : held) {
      ends[bytes.span().data()] = bytes.span().data() + bytes.span().size();
    }
    ASSERT_EQ(ends.size(), held.size());
    const std::byte* last = nullptr;
    for (const auto& [begin, end] : ends) {
      ASSERT_LE(last, begin);
      last = end;
    }
  }
  held.clear();
  EXPECT_EQ(memory_.free_bytes(), kArena);
  // The whole arena has merged again.
  const auto first = memory_.allocate(chunk::kChunkMax),
             second = memory_.allocate(chunk::kChunkMax);
  EXPECT_TRUE(inside(first.span()) && inside(second.span()));
}

TEST_F(MemoryTest, WhatAnotherProcessHasFilledCanBeReserved) {
  const ByteSpan arena = arena_.span();
  const auto there = memory_.reserve(arena.subspan(5 * kMiB, kMiB));
  EXPECT_EQ(there.span().data(), arena.data() + 5 * kMiB);
  EXPECT_EQ(memory_.free_bytes(), kArena - kMiB);
  EXPECT_TRUE(memory_.reserve(arena.subspan(5 * kMiB, kMiB)).span().empty());
  EXPECT_TRUE(memory_.reserve(arena.subspan(5 * kMiB + 64 * kKiB, 64 * kKiB)).span().empty());
  EXPECT_TRUE(memory_.reserve(arena.subspan(4 * kMiB, 2 * kMiB)).span().empty());
  // None begins there, or it lies outside.
  EXPECT_TRUE(memory_.reserve(arena.subspan(kMiB / 2, kMiB)).span().empty());
  const chunk::AlignedBuffer elsewhere(kMiB);
  EXPECT_TRUE(memory_.reserve(elsewhere.span()).span().empty());
  {
    std::vector<BufferPool::Buffer> all;
    while (memory_.free_bytes() > 0) all.push_back(memory_.allocate(kMiB));
    for (const auto& one : all) EXPECT_NE(one.span().data(), there.span().data());
  }
  EXPECT_EQ(memory_.free_bytes(), kArena - kMiB);
}

TEST_F(MemoryTest, WhatDoesNotFitComesFromTheHeap) {
  const auto first = memory_.allocate(chunk::kChunkMax),
             second = memory_.allocate(chunk::kChunkMax);
  const auto third = memory_.allocate(kMiB);
  EXPECT_FALSE(inside(third.span()));
  EXPECT_EQ(third.span().size(), kMiB);
}

TEST_F(MemoryTest, AnArenaMayHaveAnySize) {
  constexpr uint64_t kOdd = 100 * kKiB;  // 64 and 32 and 4
  BufferPool memory(arena_.span().first(kOdd));
  EXPECT_EQ(memory.free_bytes(), kOdd);
  for (int round = 0; round < 2; round++) {
    const auto a = memory.allocate(64 * kKiB), b = memory.allocate(32 * kKiB),
               c = memory.allocate(100);
    for (const BufferPool::Buffer* const one : {&a, &b, &c}) EXPECT_TRUE(inside(one->span()));
    EXPECT_EQ(memory.free_bytes(), 0u);
    EXPECT_FALSE(inside(memory.allocate(1).span()));
  }
  EXPECT_EQ(memory.free_bytes(), kOdd);
}

TEST_F(MemoryTest, WithoutAnArenaAllIsHeap) {
  BufferPool none;
  EXPECT_EQ(none.allocate(4096).span().size(), 4096u);
  EXPECT_EQ(none.free_bytes(), 0u);
}

TEST_F(MemoryTest, TheLowestPlacesAreUsedFirst) {
  const auto first = memory_.allocate(kMiB);
  {
    const auto second = memory_.allocate(kMiB);
    EXPECT_EQ(second.span().data(), first.span().data() + kMiB);
  }
  const auto again = memory_.allocate(kMiB);
  EXPECT_EQ(again.span().data(), first.span().data() + kMiB);
}

}  // namespace
}  // namespace ff::chain

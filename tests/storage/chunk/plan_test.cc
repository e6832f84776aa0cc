// What an update writes where: lengths in, granules out; and what never may happen, for any update.
#include "storage/chunk/plan.h"

#include <gtest/gtest.h>

#include "platform/base/rng.h"
#include "platform/io/test_bytes.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

std::vector<std::byte> memory(2 * kMiB);

Update write(uint64_t offset, uint64_t size) {
  return {.version = 1,
          .change = Change::write,
          .offset = offset,
          .data = ByteView(memory).first(size),
          .chunk_size = kMiB};
}

Update resize(uint64_t length) {
  return {.version = 1, .change = Change::resize, .length = length, .chunk_size = kMiB};
}

const Base kMebibyte{.length = kMiB, .of = Class{4}, .filled = 256};

TEST(ChunkPlan, ANewChunkGetsTheSmallestBlockThatHoldsIt) {
  const auto small = plan_update({}, write(0, 5000));
  ASSERT_TRUE(ok(small));
  EXPECT_TRUE(small->whole);
  EXPECT_EQ(small->of, 0);
  EXPECT_EQ(small->end, 2u);
  const auto gap = plan_update({}, write(70000, 1));
  EXPECT_EQ(gap->of, 1);
  EXPECT_EQ(gap->from, 0u);
  EXPECT_EQ(gap->length, 70001u);
}

TEST(ChunkPlan, OneThatOutgrowsItsBlockGetsOneOfTheChunksFullSize) {
  const auto plan = plan_update({.length = 65536, .of = Class{0}, .filled = 16}, write(65536, 1));
  ASSERT_TRUE(ok(plan));
  EXPECT_TRUE(plan->whole);
  EXPECT_EQ(plan->of, 4);
  EXPECT_EQ(plan->end, 17u);
}

TEST(ChunkPlan, AnAppendFromAGranuleOnGoesInPlace) {
  const Base base{.length = 8192, .of = Class{4}, .filled = 2};
  const auto plan = plan_update(base, write(8192, 10000));
  ASSERT_TRUE(ok(plan));
  EXPECT_FALSE(plan->whole);
  EXPECT_EQ(plan->first, 2u);
  EXPECT_EQ(plan->end, 5u);
  EXPECT_EQ(plan->slots, 0u);
  // Not where a forgotten version has written.
  EXPECT_EQ(plan_update({.length = 8192, .of = Class{4}, .filled = 4}, write(8192, 10000))->slots,
            2u);
}

TEST(ChunkPlan, AnAppendInsideAGranuleMovesThatGranule) {
  const Base base{.length = 5000, .of = Class{4}, .filled = 2};
  const auto plan = plan_update(base, write(5000, 10000));
  ASSERT_TRUE(ok(plan));
  EXPECT_EQ(plan->first, 1u);
  EXPECT_EQ(plan->end, 4u);
  EXPECT_EQ(plan->slots, 1u);
}

TEST(ChunkPlan, SmallOverwritesTakeSlotsUntilThereAreNone) {
  const auto plan = plan_update(kMebibyte, write(4095, 2));
  ASSERT_TRUE(ok(plan));
  EXPECT_FALSE(plan->whole);
  EXPECT_EQ(plan->first, 0u);
  EXPECT_EQ(plan->slots, 2u);
  Base base = kMebibyte;
  base.slots = 62;
  EXPECT_FALSE(plan_update(base, write(4095, 2))->whole);
  base.slots = 63;
  EXPECT_TRUE(plan_update(base, write(4095, 2))->whole);
  EXPECT_TRUE(plan_update(kMebibyte, write(0, 65 * 4096))->whole);
  EXPECT_FALSE(plan_update(kMebibyte, write(0, 64 * 4096))->whole);
}

TEST(ChunkPlan, CutsMoveTheGranuleTheyCutAndNothingElse) {
  const auto inside = plan_update(kMebibyte, resize(10000));
  ASSERT_TRUE(ok(inside));
  EXPECT_EQ(inside->first, 2u);
  EXPECT_EQ(inside->end, 3u);
  EXPECT_EQ(inside->slots, 1u);
  const auto between = plan_update(kMebibyte, resize(8192));
  EXPECT_EQ(between->first, between->end);
  EXPECT_FALSE(between->whole);
  const auto same = plan_update(kMebibyte, resize(kMiB));
  EXPECT_EQ(same->first, same->end);
  EXPECT_EQ(plan_update(kMebibyte, resize(0))->length, 0u);
}

TEST(ChunkPlan, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(code_of(plan_update({}, write(kMiB, 1))), Errc::usage);
  EXPECT_EQ(code_of(plan_update({}, write(UINT64_MAX, 1))), Errc::usage);
  EXPECT_EQ(code_of(plan_update({}, resize(kMiB + 1))), Errc::usage);
  Update update = write(0, 1);
  update.chunk_size = 0;
  EXPECT_EQ(code_of(plan_update({}, update)), Errc::usage);
  update.chunk_size = kChunkMax + 1;
  EXPECT_EQ(code_of(plan_update({}, update)), Errc::usage);
}

// For any base and update: in place goes only what was never written, slots only into free ones,
// and every new byte is written.
TEST(ChunkPlan, KeepsItsRulesForAnyUpdate) {
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    Base base;
    if (rng.below(4) > 0) {
      const auto of = static_cast<Class>(rng.below(5));
      base.of = of;
      base.length = 1 + rng.below(block_bytes(of));
      const uint64_t used = align_up(base.length, granule_bytes(of)) / granule_bytes(of);
      base.filled = used + rng.below(granules(of) - used + 1);
      base.slots = has_pieces(of) ? rng.below(kPieces + 1) : 0;
    }
    Update update = write(rng.below(kMiB), rng.below(rng.below(2) == 0 ? 10000 : kMiB));
    update.change = static_cast<Change>(rng.below(4));
    update.length = rng.below(kMiB + 1);
    const auto plan = plan_update(base, update);
    if (!plan) {
      EXPECT_EQ(plan.error().code, Errc::usage);
      continue;
    }
    if (plan->length == 0) continue;
    EXPECT_LE(plan->length, block_bytes(plan->of));
    EXPECT_LE(plan->end, granules(plan->of));
    if (plan->from < plan->to) {
      EXPECT_LE(plan->begin_byte(), plan->from);
      EXPECT_GE(plan->end_byte(), plan->to);
    }
    if (plan->whole) {
      EXPECT_EQ(plan->first, 0u);
      EXPECT_EQ(plan->end_byte(), plan->length);
      EXPECT_EQ(plan->slots, 0u);
      continue;
    }
    EXPECT_EQ(plan->of, *base.of);
    EXPECT_LE(base.slots + plan->slots, has_pieces(plan->of) ? kPieces : 0);
    if (plan->end > plan->first + plan->slots) {
      EXPECT_GE(plan->first + plan->slots, base.filled);
    }
  }
}

}  // namespace
}  // namespace ff::chunk

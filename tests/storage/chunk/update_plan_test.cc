// Update plans: lengths in, units out; and invariants for arbitrary updates.
#include "storage/chunk/update_plan.h"

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
          .type = UpdateType::write,
          .offset = offset,
          .data = ByteView(memory).first(size),
          .chunk_size = kMiB};
}

Update resize(uint64_t length) {
  return {.version = 1, .type = UpdateType::truncate, .length = length, .chunk_size = kMiB};
}

const BaseVersion kMebibyte{.length = kMiB, .size_class = SizeClass{4}, .filled_units = 256};

TEST(UpdatePlanTest, ANewChunkGetsTheSmallestBlockThatHoldsIt) {
  const auto small = plan_update({}, write(0, 5000));
  ASSERT_TRUE(ok(small));
  EXPECT_TRUE(small->rewrite);
  EXPECT_EQ(small->size_class, 0);
  EXPECT_EQ(small->end_unit, 2u);
  const auto gap = plan_update({}, write(70000, 1));
  EXPECT_EQ(gap->size_class, 1);
  EXPECT_EQ(gap->data_begin, 0u);
  EXPECT_EQ(gap->length, 70001u);
}

TEST(UpdatePlanTest, OneThatOutgrowsItsBlockGetsOneOfTheChunksFullSize) {
  const auto plan = plan_update({.length = 65536, .size_class = SizeClass{0}, .filled_units = 16},
                                write(65536, 1));
  ASSERT_TRUE(ok(plan));
  EXPECT_TRUE(plan->rewrite);
  EXPECT_EQ(plan->size_class, 4);
  EXPECT_EQ(plan->end_unit, 17u);
}

TEST(UpdatePlanTest, AnAppendFromAChecksumUnitOnGoesInPlace) {
  const BaseVersion base{.length = 8192, .size_class = SizeClass{4}, .filled_units = 2};
  const auto plan = plan_update(base, write(8192, 10000));
  ASSERT_TRUE(ok(plan));
  EXPECT_FALSE(plan->rewrite);
  EXPECT_EQ(plan->first_unit, 2u);
  EXPECT_EQ(plan->end_unit, 5u);
  EXPECT_EQ(plan->replaced_units, 0u);
  // Never over units that a dropped version has written.
  EXPECT_EQ(plan_update({.length = 8192, .size_class = SizeClass{4}, .filled_units = 4},
                        write(8192, 10000))
                ->replaced_units,
            2u);
}

TEST(UpdatePlanTest, AnAppendInsideAChecksumUnitMovesThatUnit) {
  const BaseVersion base{.length = 5000, .size_class = SizeClass{4}, .filled_units = 2};
  const auto plan = plan_update(base, write(5000, 10000));
  ASSERT_TRUE(ok(plan));
  EXPECT_EQ(plan->first_unit, 1u);
  EXPECT_EQ(plan->end_unit, 4u);
  EXPECT_EQ(plan->replaced_units, 1u);
}

TEST(UpdatePlanTest, SmallOverwritesTakeSlotsUntilThereAreNone) {
  const auto plan = plan_update(kMebibyte, write(4095, 2));
  ASSERT_TRUE(ok(plan));
  EXPECT_FALSE(plan->rewrite);
  EXPECT_EQ(plan->first_unit, 0u);
  EXPECT_EQ(plan->replaced_units, 2u);
  BaseVersion base = kMebibyte;
  base.used_slots = 62;
  EXPECT_FALSE(plan_update(base, write(4095, 2))->rewrite);
  base.used_slots = 63;
  EXPECT_TRUE(plan_update(base, write(4095, 2))->rewrite);
  EXPECT_TRUE(plan_update(kMebibyte, write(0, 65 * 4096))->rewrite);
  EXPECT_FALSE(plan_update(kMebibyte, write(0, 64 * 4096))->rewrite);
}

TEST(UpdatePlanTest, SmallOverwritesGoToTheLogIfItHasRoom) {
  BaseVersion base = kMebibyte;
  base.used_slots = kOverlaySlots;
  base.log_has_room = true;
  const auto small = plan_update(base, write(4095, 2));
  ASSERT_TRUE(ok(small));
  EXPECT_TRUE(small->to_log);
  EXPECT_EQ(small->replaced_units, 2u);
  EXPECT_TRUE(plan_update(base, write(4095, kLoggedUpdateMax))->to_log);
  EXPECT_TRUE(plan_update(base, write(4095, kLoggedUpdateMax + 1))->rewrite);
  // Units of a large block are too large.
  const BaseVersion large{
      .length = kChunkMax, .size_class = SizeClass{10}, .filled_units = 256, .log_has_room = true};
  Update within = write(0, 10);
  within.chunk_size = kChunkMax;
  const auto unit = plan_update(large, within);
  ASSERT_TRUE(ok(unit));
  EXPECT_FALSE(unit->to_log);
  EXPECT_EQ(unit->replaced_units, 1u);
  // An append goes to the block, except the unit that has data.
  const BaseVersion end{
      .length = 5000, .size_class = SizeClass{4}, .filled_units = 2, .log_has_room = true};
  const auto append = plan_update(end, write(5000, 10000));
  EXPECT_TRUE(append->to_log);
  EXPECT_EQ(append->replaced_units, 1u);
  EXPECT_EQ(append->end_unit, 4u);
  EXPECT_FALSE(
      plan_update(
          {.length = 8192, .size_class = SizeClass{4}, .filled_units = 2, .log_has_room = true},
          write(8192, 100))
          ->to_log);
}

TEST(UpdatePlanTest, TruncationsMoveTheUnitTheyCutAndNothingElse) {
  const auto inside = plan_update(kMebibyte, resize(10000));
  ASSERT_TRUE(ok(inside));
  EXPECT_EQ(inside->first_unit, 2u);
  EXPECT_EQ(inside->end_unit, 3u);
  EXPECT_EQ(inside->replaced_units, 1u);
  const auto between = plan_update(kMebibyte, resize(8192));
  EXPECT_EQ(between->first_unit, between->end_unit);
  EXPECT_FALSE(between->rewrite);
  const auto same = plan_update(kMebibyte, resize(kMiB));
  EXPECT_EQ(same->first_unit, same->end_unit);
  EXPECT_EQ(plan_update(kMebibyte, resize(0))->length, 0u);
}

TEST(UpdatePlanTest, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(code_of(plan_update({}, write(kMiB, 1))), Errc::usage);
  EXPECT_EQ(code_of(plan_update({}, write(UINT64_MAX, 1))), Errc::usage);
  EXPECT_EQ(code_of(plan_update({}, resize(kMiB + 1))), Errc::usage);
  Update update = write(0, 1);
  update.chunk_size = 0;
  EXPECT_EQ(code_of(plan_update({}, update)), Errc::usage);
  update.chunk_size = kChunkMax + 1;
  EXPECT_EQ(code_of(plan_update({}, update)), Errc::usage);
}

// For any base and update: only unused units are written in place, only free slots are used, and
// every new byte is written.
TEST(UpdatePlanTest, KeepsItsRulesForAnyUpdate) {
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE(seed);
    SeededRng rng(seed);
    BaseVersion base;
    if (rng.below(4) > 0) {
      const auto of = static_cast<SizeClass>(rng.below(5));
      base.size_class = of;
      base.length = 1 + rng.below(block_bytes(of));
      const uint64_t used =
          align_up(base.length, checksum_unit_bytes(of)) / checksum_unit_bytes(of);
      base.filled_units = used + rng.below(checksum_units(of) - used + 1);
      base.used_slots = has_overlay(of) ? rng.below(kOverlaySlots + 1) : 0;
      base.log_has_room = rng.below(2) == 0;
    }
    Update update = write(rng.below(kMiB), rng.below(rng.below(2) == 0 ? 10000 : kMiB));
    update.type = static_cast<UpdateType>(rng.below(4));
    update.length = rng.below(kMiB + 1);
    const auto plan = plan_update(base, update);
    if (!plan) {
      EXPECT_EQ(plan.error().code, Errc::usage);
      continue;
    }
    if (plan->length == 0) continue;
    EXPECT_LE(plan->length, block_bytes(plan->size_class));
    EXPECT_LE(plan->end_unit, checksum_units(plan->size_class));
    if (plan->data_begin < plan->data_end) {
      EXPECT_LE(plan->begin_byte(), plan->data_begin);
      EXPECT_GE(plan->end_byte(), plan->data_end);
    }
    if (plan->rewrite) {
      EXPECT_EQ(plan->first_unit, 0u);
      EXPECT_EQ(plan->end_byte(), plan->length);
      EXPECT_EQ(plan->replaced_units, 0u);
      continue;
    }
    EXPECT_EQ(plan->size_class, *base.size_class);
    if (plan->to_log) {
      EXPECT_TRUE(base.log_has_room);
      EXPECT_LE(plan->replaced_units * plan->unit_bytes(), kLoggedUnitsMax);
    } else if (plan->replaced_units > 0) {
      EXPECT_LE(base.used_slots + plan->replaced_units,
                has_overlay(plan->size_class) ? kOverlaySlots : 0);
    }
    if (plan->end_unit > plan->first_unit + plan->replaced_units) {
      EXPECT_GE(plan->first_unit + plan->replaced_units, base.filled_units);
    }
  }
}

}  // namespace
}  // namespace ff::chunk

// Block files that are missing, too short or swapped when a disk is opened: their chunks are marked
// damaged, fail to read, stay marked over restarts, and recover when they are rewritten.
#include <gtest/gtest.h>

#include "platform/io/files.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

constexpr ChunkId kSmall{1, 0};  // in a block of 64 KiB
constexpr ChunkId kOther{1, 1};  // in the next one
constexpr ChunkId kLarge{1, 2};  // in a block of 1 MiB

class ChunkDamage : public testing::Test {
 protected:
  void SetUp() override {
    world_.make();
    ASSERT_TRUE(ok(world_.write(kSmall, small_)));
    ASSERT_TRUE(ok(world_.write(kOther, other_)));
    ASSERT_TRUE(ok(world_.write(kLarge, large_)));
    world_.close();
  }
  std::string path(const std::string& name) { return kDir + "/" + name; }
  void cut(const std::string& name, uint64_t size) {
    auto file = world_.disk.open(path(name), {.access = io::AccessMode::read_write});
    ASSERT_TRUE(ok(file));
    ASSERT_TRUE(ok((*file)->truncate(size)));
    ASSERT_TRUE(ok((*file)->sync()));
  }
  std::vector<ChunkId> damaged() { return world_.store->list_damaged(kTarget, {}, 100); }
  void reopen() {
    world_.kill();
    ASSERT_TRUE(ok(world_.open()));
  }
  // The small chunks are marked damaged, the large one is not.
  void expect_small_lost() {
    EXPECT_EQ(damaged(), (std::vector{kSmall, kOther}));
    EXPECT_EQ(world_.store->targets().front().damaged, 2u);
    EXPECT_EQ(world_.get(kSmall), "(corrupt)");
    EXPECT_EQ(world_.get(kOther), "(corrupt)");
    EXPECT_TRUE(world_.get(kLarge) == large_);
    EXPECT_TRUE(ok(world_.store->health()));
  }

  ChunkWorld world_{1};
  const std::string small_ = bytes_of(1, 10'000);
  const std::string other_ = bytes_of(2, 20'000);
  const std::string large_ = bytes_of(3, 300'000);
};

TEST_F(ChunkDamage, AMissingFileIsNotMadeAnew) {
  ASSERT_TRUE(ok(world_.disk.remove(path("64KiB.data"))));
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->damaged_at_open(), 2u);
  expect_small_lost();
  reopen();
  EXPECT_EQ(world_.store->damaged_at_open(), 0u) << "it is known already";
  expect_small_lost();
  EXPECT_FALSE(*io::exists(world_.disk, path("64KiB.data")));
  // No update may build on it; salvage() reports what is missing.
  EXPECT_EQ(code_of(world_.pend(world_.update(kSmall, UpdateType::write, "x", 10'000))),
            Errc::corrupt);
  std::string bytes(small_.size(), '?');
  const ByteSpan into = std::as_writable_bytes(std::span(bytes));
  const auto places = world_.run(world_.store->salvage(kTarget, kSmall, into));
  ASSERT_TRUE(ok(places));
  EXPECT_EQ(places->size(), 3u);
  EXPECT_TRUE(ok(world_.store->health()));
}

TEST_F(ChunkDamage, ItStaysKnownThoughTheFileIsThereAgain) {
  ASSERT_TRUE(ok(world_.disk.remove(path("64KiB.data"))));
  ASSERT_TRUE(ok(world_.disk.remove(path("64KiB.crc"))));
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(world_.write({2, 0}, "new")));  // this creates the files again
  expect_small_lost();
  ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  world_.power_loss();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(*io::exists(world_.disk, path("64KiB.data")));
  EXPECT_EQ(world_.get({2, 0}), "new");
  expect_small_lost();
  EXPECT_FALSE(*world_.run(world_.store->verify(kTarget, kSmall)));
  // One is rewritten, the other removed.
  ASSERT_TRUE(ok(world_.replace(kSmall, small_)));
  ASSERT_TRUE(ok(world_.remove(kOther)));
  EXPECT_TRUE(damaged().empty());
  EXPECT_TRUE(world_.get(kSmall) == small_);
  reopen();
  EXPECT_TRUE(damaged().empty());
  EXPECT_EQ(world_.store->damaged_at_open(), 0u);
  EXPECT_TRUE(world_.get(kSmall) == small_);
}

TEST_F(ChunkDamage, AFileThatIsTooShortHasLostWhatLayBehind) {
  struct Case {
    std::string file;
    uint64_t size;
  };
  for (const Case& one : {Case{"64KiB.data", 64 * kKiB}, Case{"64KiB.crc", 12}}) {
    SCOPED_TRACE(one.file);
    cut(one.file, one.size);
    ASSERT_TRUE(ok(world_.open()));
    EXPECT_EQ(damaged(), std::vector{kOther});
    EXPECT_TRUE(world_.get(kSmall) == small_);
    EXPECT_EQ(world_.get(kOther), "(corrupt)");
    ASSERT_TRUE(ok(world_.replace(kOther, other_)));
    EXPECT_TRUE(damaged().empty());
    world_.close();
  }
}

TEST_F(ChunkDamage, AFileOfTheRightSizeWithOtherContentIsToBeLookedAt) {
  auto file = world_.disk.open(path("64KiB.data"), {.access = io::AccessMode::read_write});
  ASSERT_TRUE(ok(file));
  const std::string before = *io::read_file(world_.disk, path("64KiB.data"), kGiB);
  ASSERT_TRUE(ok((*file)->write_at(as_bytes(bytes_of(9, 128 * kKiB)), 0)));
  ASSERT_TRUE(ok((*file)->sync()));
  ASSERT_TRUE(ok(world_.open()));
  expect_small_lost();
  // A suspect chunk that is intact becomes unmarked.
  auto back = world_.disk.open(path("64KiB.data"), {.access = io::AccessMode::read_write});
  ASSERT_TRUE(ok((*back)->write_at(as_bytes(before).first(64 * kKiB), 0)));
  EXPECT_TRUE(*world_.run(world_.store->verify(kTarget, kSmall)));
  EXPECT_EQ(damaged(), std::vector{kOther});
  reopen();
  EXPECT_EQ(damaged(), std::vector{kOther});
}

TEST_F(ChunkDamage, OneDamagedChunkIsNoOtherFile) {
  ASSERT_TRUE(ok(world_.disk.flip_bit(path("64KiB.data"), 100)));
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(damaged(), std::vector{kSmall});
  EXPECT_TRUE(world_.get(kOther) == other_);
}

TEST_F(ChunkDamage, WhatAScrubFindsIsKeptToo) {
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(world_.disk.flip_bit(path("64KiB.data"), 100)));
  world_.store->mark_damaged(kTarget, kSmall);
  world_.store->mark_damaged(kTarget, {5, 5});  // no such chunk
  EXPECT_EQ(damaged(), std::vector{kSmall});
  world_.world.run_for(3 * kSecond);
  reopen();
  EXPECT_EQ(damaged(), std::vector{kSmall});
  // A partial write keeps the damage of the rest.
  EXPECT_TRUE(ok(world_.write(kSmall, "y", 10'000)));
  EXPECT_EQ(damaged(), std::vector{kSmall});
  ASSERT_TRUE(ok(world_.run(world_.store->remove_target(kTarget))));
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(kTarget, 70))));
  EXPECT_EQ(world_.store->targets().front().damaged, 0u);
  reopen();
  EXPECT_EQ(world_.store->targets().front().damaged, 0u);
}

// A lost pending version may have been acknowledged, so its writer must get an error.
TEST_F(ChunkDamage, WhatIsTakenBackOnTheSameBootIsALoss) {
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(world_.run(world_.store->set_target_state(kTarget, 5))));
  ASSERT_TRUE(ok(world_.write({3, 0}, bytes_of(4, 100'000))));
  world_.kill();
  ASSERT_TRUE(ok(world_.disk.remove(path("128KiB.data"))));
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_shutdown(), ShutdownKind::process_died);
  EXPECT_EQ(world_.store->rolled_back_chunks(), 1u);
  EXPECT_TRUE(world_.store->targets().front().power_lost);
}

}  // namespace
}  // namespace ff::chunk

// Pruning of tombstones, head first; and chunks that are created again while only some targets have
// pruned them.
#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

using chunk::ChunkId;
using chunk::ChunkState;
using chunk::UpdateType;

class PruneTest : public testing::Test {
 protected:
  PruneTest() {
    EXPECT_TRUE(world_.write(0, {.id = kA, .data = "one"}).ok());
    EXPECT_TRUE(world_.write(0, {.id = kA, .data = "two"}).ok());
    EXPECT_TRUE(world_.write(0, {.id = kA, .type = UpdateType::remove}).ok());
    for (const size_t i : {0, 1, 2}) EXPECT_EQ(state(i).committed.version, 3u);
    world_.sim.run_for(chunk::kRetentionNs + kSecond);
  }
  ChunkState state(size_t i) { return *world_.store(i).state(world_.target(i), kA); }
  bool forgotten(size_t i) { return state(i) == ChunkState(); }
  void prune(size_t i) {
    world_.replica(i).start_prune(world_.sim.clock().wall_ns());
    world_.sim.run_for(kSecond);
  }
  void write_anew(uint64_t version) {
    ASSERT_TRUE(world_.write(0, {.id = kA, .data = "new"}).ok());
    for (const size_t i : {0, 1, 2}) {
      EXPECT_EQ(world_.read(i, kA), "new") << i;
      EXPECT_EQ(state(i).committed.version, version) << i;
    }
    world_.expect_equal(0, 1);
    world_.expect_equal(0, 2);
    EXPECT_TRUE(world_.failures.empty());
  }

  ChainWorld world_{3};
};

TEST_F(PruneTest, TheHeadForgetsFirst) {
  for (const size_t early : {2, 1}) {
    prune(early);
    EXPECT_FALSE(forgotten(early)) << "the one before it has not";
  }
  for (const size_t i : {0, 1, 2}) {
    prune(i);
    EXPECT_TRUE(forgotten(i)) << i;
  }
  write_anew(1);
}

TEST_F(PruneTest, WhatComesAnewMeetsTombstonesAfterTheHead) {
  prune(0);
  EXPECT_TRUE(forgotten(0));
  EXPECT_EQ(world_.read(1, kA), "(not_found)");
  write_anew(1);
}

TEST_F(PruneTest, WhatComesAnewMeetsTombstonesInTheMiddle) {
  prune(0);
  prune(1);
  EXPECT_TRUE(forgotten(1));
  EXPECT_FALSE(forgotten(2));
  write_anew(1);
}

TEST_F(PruneTest, BeforeTheHeadHasForgottenVersionsGoOn) { write_anew(4); }

TEST_F(PruneTest, ANewHeadWithATombstoneGoesOn) {
  prune(0);
  world_.kill(0);
  world_.set({TargetState::offline, TargetState::serving, TargetState::serving});
  ASSERT_TRUE(world_.write(1, {.id = kA, .data = "new"}).ok());
  EXPECT_EQ(state(1).committed.version, 4u);
  world_.bring_back(0);
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(0); }));
  world_.change_one(0, TargetState::serving);
  world_.expect_equal(0, 1);
  EXPECT_EQ(world_.read(0, kA), "new");
}

// The syncing target got the tombstone under this chain version and keeps it longer.
TEST_F(PruneTest, WhatComesAnewReachesATargetThatIsBeingCopiedTo) {
  world_.kill(2);
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  world_.bring_back(2);
  ASSERT_TRUE(world_.write(0, {.id = kA, .data = "again"}).ok());
  ASSERT_TRUE(world_.write(0, {.id = kA, .type = UpdateType::remove}).ok());
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(2); }));
  world_.sim.run_for(chunk::kRetentionNs + kSecond);
  prune(0);
  prune(1);
  EXPECT_TRUE(forgotten(1));
  EXPECT_FALSE(forgotten(2));
  ASSERT_TRUE(world_.write(0, {.id = kA, .data = "new"}).ok());
  world_.change_one(2, TargetState::serving);
  world_.sim.run_for(kSecond);
  EXPECT_EQ(world_.read(2, kA), "new");
  world_.expect_equal(0, 2);
}

TEST_F(PruneTest, ReadsMeanwhileFindNothingOrTheNew) {
  prune(0);
  world_.net.block("n2", "n3");
  std::optional<Result<wire::WriteReply>> wrote;
  world_.begin(world_.send(0, {.id = kA, .data = "new"}), wrote);
  ASSERT_TRUE(world_.eventually([&] { return state(1).pending.has_value(); }));
  std::optional<Result<std::string>> got;
  world_.begin(world_.get(0, kA), got);
  ASSERT_TRUE(world_.eventually([&] { return got.has_value(); }, 5 * kSecond));
  EXPECT_EQ(got->error().code, Errc::not_found);
  world_.net.unblock("n2", "n3");
  ASSERT_TRUE(world_.eventually([&] { return wrote.has_value(); }));
  EXPECT_TRUE(wrote->ok());
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(world_.read(i, kA), "new") << i;
}

}  // namespace
}  // namespace ff::chain

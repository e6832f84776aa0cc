// A device that loses acknowledged changes while the machine runs is noticed at the next open, and
// nothing else is taken for that.
#include "storage/chunk/acked_position.h"

#include <gtest/gtest.h>

#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

constexpr ChunkId kChunk{1, 0};

bool told(const ChunkWorld& world) { return world.store->targets().front().power_lost; }

TEST(AckedPositionTest, ADeviceThatLosesAcknowledgedChangesIsNoticed) {
  int lost = 0;
  int lost_whole = 0;  // data and metadata: nothing had to be rolled back
  for (uint64_t seed = 1; seed <= 60; seed++) {
    SCOPED_TRACE(seed);
    ChunkWorld world(seed);
    world.make();
    ASSERT_TRUE(io::ok(world.replace(kChunk, bytes_of(seed, 5000))));
    ASSERT_TRUE(io::ok(world.run(world.store->sync())));
    const std::string last = bytes_of(seed + 1000, 5000);
    for (uint64_t i = 0; i < seed % 4; i++) {
      ASSERT_TRUE(io::ok(world.replace(kChunk, bytes_of(seed + i, 5000))));
    }
    ASSERT_TRUE(io::ok(world.replace(kChunk, last)));
    world.device_loss();
    ASSERT_TRUE(io::ok(world.open()));
    if (world.get(kChunk) == last) continue;
    lost++;
    EXPECT_TRUE(told(world));
    if (world.store->rolled_back_chunks() > 0) continue;
    lost_whole++;
    EXPECT_EQ(world.store->last_shutdown(), ShutdownKind::writes_lost);
  }
  EXPECT_GT(lost, 0);
  EXPECT_GT(lost_whole, 0);
}

TEST(AckedPositionTest, ALostDiskThatWasClosedBeforeIsNoticed) {
  ChunkWorld world(1);
  world.make();
  world.close();
  for (int round = 0; round < 20; round++) {
    ASSERT_TRUE(io::ok(world.open()));
    EXPECT_FALSE(told(world)) << round;
    ASSERT_TRUE(io::ok(world.replace(kChunk, bytes_of(1, 100))));
    world.close();
  }
  ASSERT_TRUE(io::ok(world.open()));
  ASSERT_TRUE(io::ok(world.replace(kChunk, bytes_of(2, 100))));
  const uint64_t version = world.store->state(kTarget, kChunk)->committed.version;
  world.device_loss();
  ASSERT_TRUE(io::ok(world.open()));
  const bool lost = world.store->state(kTarget, kChunk)->committed.version < version;
  EXPECT_EQ(told(world), lost);
}

// The log of the metadata begins anew several times.
TEST(AckedPositionTest, NoEndOfAProcessIsTakenForALoss) {
  for (uint64_t seed = 1; seed <= 2; seed++) {
    SCOPED_TRACE(seed);
    ChunkWorld world(seed);
    world.make();
    for (int round = 0; round < 20; round++) {
      const uint64_t changes = world.rng.below(6);
      for (uint64_t i = 0; i < changes; i++) {
        ASSERT_TRUE(
            io::ok(world.run(world.store->set_owner_record(bytes_of(world.rng.next(), 2 * kMiB)))));
        ASSERT_TRUE(io::ok(world.replace(kChunk, bytes_of(i, 100))));
      }
      if (world.rng.below(3) == 0) {
        world.close();
      } else {
        world.kill();
      }
      ASSERT_TRUE(io::ok(world.open()));
      EXPECT_NE(world.store->last_shutdown(), ShutdownKind::writes_lost) << round;
      EXPECT_FALSE(told(world)) << round;
      ASSERT_TRUE(io::ok(world.run(world.store->set_target_state(kTarget, 1))));
    }
  }
}

TEST(AckedPositionTest, AFailureIsKnownToTheNextProcess) {
  ChunkWorld world(1);
  world.make();
  world.disk.set_fault(sim::SimOp::sync, 1, EIO);
  ASSERT_TRUE(io::ok(world.replace(kChunk, "content")));
  EXPECT_FALSE(world.run(world.store->sync()));
  EXPECT_FALSE(world.store->health());
  world.disk.set_fault(sim::SimOp::sync, 0, 0);
  world.kill();
  ASSERT_TRUE(io::ok(world.open()));
  EXPECT_TRUE(told(world)) << "the kernel may have dropped what it could not write";
  ASSERT_TRUE(io::ok(world.run(world.store->sync())));
  world.power_loss();
  ASSERT_TRUE(io::ok(world.open()));
  EXPECT_EQ(world.get(kChunk), "content");
}

TEST(AckedPositionTest, ADamagedRecordSaysNothing) {
  ChunkWorld world(1);
  world.make();
  ASSERT_TRUE(io::ok(world.replace(kChunk, "content")));
  world.kill();
  ASSERT_TRUE(world.memory.flip_bit("/shm/ff-disk-cluster-1-5-disk-1", 100));
  ASSERT_TRUE(io::ok(world.open()));
  EXPECT_FALSE(told(world));
  EXPECT_EQ(world.store->last_shutdown(), ShutdownKind::process_died);
}

}  // namespace
}  // namespace ff::chunk

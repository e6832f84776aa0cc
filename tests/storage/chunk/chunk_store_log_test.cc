// Small updates whose data is in the log of the metadata: where it is read from, how it moves to
// the blocks, and what happens when that is not possible.
#include <gtest/gtest.h>

#include <cerrno>

#include "platform/base/gate.h"
#include "platform/io/files.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    world_.log_segment_bytes = 64 * kKiB;
    world_.checkpoint_segments = 2;
    world_.make();
    ASSERT_TRUE(ok(world_.write(id_, text_)));
    ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  }

  Result<ChunkState> overwrite(uint64_t offset, size_t size) {
    const std::string data = bytes_of(++seed_, size);
    text_.replace(offset, size, data);
    return world_.write(id_, data, offset);
  }
  uint64_t used_blocks() {
    uint64_t blocks = 0;
    for (const SizeClassUsage& usage : world_.store->usage()) blocks += usage.used_blocks;
    return blocks;
  }
  uint64_t segment() { return read_checkpoint(world_.disk, kDir)->segment; }
  // What the block of the only chunk has at `offset`.
  std::string in_block(uint64_t offset, size_t size) {
    const auto file = world_.disk.open(kDir + "/1MiB.data", {});
    std::string bytes(size, '\0');
    const ByteSpan into(reinterpret_cast<std::byte*>(bytes.data()), size);
    const auto read = (*file)->read_at(into, offset);
    EXPECT_TRUE(read && *read == size);
    return bytes;
  }
  // Overwrites other chunks until a checkpoint has been made.
  void fill_log() {
    const uint64_t before = segment();
    for (uint64_t i = 0; segment() == before; ++i) {
      ASSERT_LT(i, 1000u);
      const ChunkId other{.inode = 9, .index = i % 3};
      if (world_.store->state(kTarget, other)->committed.version == 0) {
        ASSERT_TRUE(ok(world_.write(other, bytes_of(i, 50000))));
      }
      ASSERT_TRUE(ok(world_.write(other, bytes_of(i, 8192), 4096)));
      (void)world_.run(pause());
    }
  }
  Task<Result<void>> pause() { co_return co_await sleep_for(world_.world.loop(), kMillisecond); }

  ChunkWorld world_{5};
  const ChunkId id_{.inode = 5, .index = 2};
  std::string text_ = bytes_of(1, kMiB);
  uint64_t seed_ = 100;
};

TEST_F(LogTest, DataIsReadFromTheLogUntilItMovesToTheBlock) {
  const std::string before = text_.substr(8192, 4096);
  ASSERT_TRUE(ok(overwrite(8192, 4096)));
  EXPECT_EQ(used_blocks(), 1u);
  EXPECT_TRUE(in_block(8192, 4096) == before);
  EXPECT_TRUE(world_.get(id_) == text_);
  fill_log();
  EXPECT_TRUE(in_block(8192, 4096) == text_.substr(8192, 4096));
  EXPECT_TRUE(world_.get(id_) == text_);
  EXPECT_EQ(used_blocks(), 4u);
}

TEST_F(LogTest, OpeningMovesTheDataToo) {
  ASSERT_TRUE(ok(overwrite(8192, 4096)));
  ASSERT_TRUE(ok(overwrite(100, 30000)));
  ASSERT_TRUE(ok(overwrite(kMiB - 10, 10)));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(in_block(0, text_.size()) == text_);
  EXPECT_TRUE(world_.get(id_) == text_);
  world_.power_loss();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->rolled_back_chunks(), 0u);
  EXPECT_TRUE(world_.get(id_) == text_);
}

// A pending version may be dropped, so that its data must not go to the block.
TEST_F(LogTest, DataOfAVersionThatStaysPendingStaysInTheLog) {
  const std::string data = bytes_of(77, 5000);
  std::string pending = text_;
  pending.replace(100000, data.size(), data);
  ASSERT_TRUE(ok(world_.pend(world_.update(id_, UpdateType::write, data, 100000))));
  for (int i = 0; i < 3; ++i) {
    fill_log();
    EXPECT_TRUE(world_.get(id_) == text_);
    EXPECT_TRUE(world_.get(id_, VersionKind::pending) == pending);
  }
  for (const bool power_lost : {false, true}) {
    ASSERT_TRUE(ok(world_.run(world_.store->sync())));
    power_lost ? world_.power_loss() : world_.kill();
    ASSERT_TRUE(ok(world_.open()));
    EXPECT_TRUE(world_.get(id_) == text_);
    EXPECT_TRUE(world_.get(id_, VersionKind::pending) == pending);
  }
  ASSERT_TRUE(ok(world_.run(world_.store->drop_pending(kTarget, id_, 2))));
  fill_log();
  EXPECT_TRUE(world_.get(id_) == text_);
  // The number of the dropped version is used again, for another unit.
  ASSERT_TRUE(ok(world_.pend(world_.update(id_, UpdateType::write, "x", 0))));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_, VersionKind::pending) == "x" + text_.substr(1));
}

// What a version has cut off does not come back.
TEST_F(LogTest, ATruncatedUnitIsNotReadFromTheLogAgain) {
  ASSERT_TRUE(ok(overwrite(500000, 8192)));
  ASSERT_TRUE(ok(world_.resize(id_, 4096)));
  ASSERT_TRUE(ok(world_.resize(id_, kMiB)));
  std::string cut = text_.substr(0, 4096);
  cut.resize(kMiB);
  EXPECT_TRUE(world_.get(id_) == cut);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_) == cut);
  ASSERT_TRUE(ok(overwrite(500000, 8192)));
  ASSERT_TRUE(ok(world_.run(world_.store->erase(kTarget, id_))));
  ASSERT_TRUE(ok(world_.write(id_, cut)));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_) == cut);
}

// Chunks that change all the time, while their data moves and reads run.
TEST_F(LogTest, ReadsAndUpdatesGoOnWhileDataMoves) {
  bool done = false;
  uint64_t reads = 0;
  const auto read = [&]() -> Task<void> {
    std::string bytes(kMiB, '\0');
    const ByteSpan into(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
    while (!done) {
      const ReadRequest request{.target = kTarget, .id = id_};
      const auto got = co_await world_.store->read(request, into);
      EXPECT_TRUE(ok(got));
      if (!got) co_return;
      EXPECT_EQ(simd::crc32c(as_bytes(bytes)), got->state.checksum);
      ++reads;
    }
  };
  const auto change = [&]() -> Task<void> {
    SeededRng rng(3);
    const uint64_t before = segment();
    while (segment() < before + 8) {
      const std::string data = bytes_of(rng.next(), 1 + rng.below(9000));
      const Update update =
          world_.update(id_, UpdateType::write, data, rng.below(kMiB - data.size()));
      EXPECT_TRUE(ok(co_await world_.store->write(update)));
      EXPECT_TRUE(ok(co_await world_.store->commit(kTarget, id_, update.version, 3)));
    }
    done = true;
  };
  Gate gate(world_.world.loop());
  for (int i = 0; i < 3; ++i) gate.spawn(read());
  gate.spawn(change());
  run_task(world_.world.loop(), gate.wait_empty());
  EXPECT_GT(reads, 10u);
  EXPECT_TRUE(ok(world_.store->health()));
}

TEST_F(LogTest, TheLogStaysBoundedAndItsFilesAreUsedAgain) {
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(ok(overwrite(static_cast<uint64_t>(i) * 4096 % kMiB, 4096)));
    // In simulation the log of rows grows, while a slow disk syncs.
    ASSERT_LE(metadata_files(world_.disk, "chunks.log-").size(), 2 * kDataSegmentsMax);
  }
  EXPECT_TRUE(world_.get(id_) == text_);
}

TEST_F(LogTest, SmallUpdatesWaitForACheckpointThatIsLate) {
  world_.close();
  world_.data_segments_max = 2;
  ASSERT_TRUE(ok(world_.open()));
  for (uint64_t i = 0; i < 150; ++i) ASSERT_TRUE(ok(overwrite(i * 4096 % kMiB, 4096)));
  EXPECT_EQ(used_blocks(), 1u);  // no overlays
  EXPECT_TRUE(world_.get(id_) == text_);
}

TEST_F(LogTest, WithoutSpaceForSegmentsSmallUpdatesGoToOverlays) {
  ASSERT_TRUE(ok(overwrite(0, 4096)));
  EXPECT_EQ(used_blocks(), 1u);
  // Overlay blocks have a group of their own.
  world_.data_segments_max = 0;
  world_.close();
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(overwrite(8192, 4096)));
  EXPECT_EQ(used_blocks(), 2u);
  world_.data_segments_max = kDataSegmentsMax;
  world_.close();
  uint64_t allocated = 0;
  const auto entries = world_.disk.list(kDir);
  ASSERT_TRUE(ok(entries));
  for (const io::DirEntry& entry : *entries) {
    allocated += world_.disk.info(kDir + "/" + entry.name)->allocated;
  }
  world_.disk.set_capacity(allocated + 3 * world_.log_segment_bytes);
  ASSERT_TRUE(ok(world_.open()));
  for (uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(ok(overwrite(i * 8192, 4096))) << i;
  EXPECT_EQ(used_blocks(), 2u);
  EXPECT_TRUE(world_.get(id_) == text_);
  world_.power_loss();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_).size() == text_.size());
}

TEST_F(LogTest, FlippedBitsInTheLogAreNeverRead) {
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(ok(overwrite(i * 12288, 4096)));
  const std::string path = first_segment(world_.disk);
  SeededRng rng(1);
  for (int i = 0; i < 40; ++i) {
    const uint64_t bit = 8 * (kSegmentDataAt + rng.below(5 * 4500));
    ASSERT_TRUE(ok(world_.disk.flip_bit(path, bit)));
    const std::string read = world_.get(id_);
    EXPECT_TRUE(read == "(corrupt)" || read == text_);
    ASSERT_TRUE(ok(world_.disk.flip_bit(path, bit)));
  }
  EXPECT_TRUE(world_.get(id_) == text_);
}

// The place of `bytes` in the log, as a bit of the file that holds them.
std::pair<std::string, uint64_t> find_bit(io::Disk& disk, const std::string& bytes) {
  for (const std::string& path : metadata_files(disk, "chunks.log-")) {
    const auto found = io::read_file(disk, path, kGiB)->find(bytes);
    if (found != std::string::npos) return {path, 8 * (found + bytes.size() / 2)};
  }
  return {"", 0};
}

// A flipped bit in the data of an update costs that update only, whenever it is noticed.
TEST_F(LogTest, AFlippedBitOfDataDamagesOneChunkAndNotTheDisk) {
  const ChunkId other{.inode = 9, .index = 7};
  ASSERT_TRUE(ok(world_.write(other, text_)));
  for (const bool restart : {false, true}) {
    SCOPED_TRACE(restart);
    ASSERT_TRUE(ok(overwrite(8192, 12288)));  // three units in one piece of data
    const auto [path, bit] = find_bit(world_.disk, text_.substr(12288, 4096));
    ASSERT_NE(path, "");
    ASSERT_TRUE(ok(world_.write(other, text_.substr(0, 4096), 4096)));
    ASSERT_TRUE(ok(world_.run(world_.store->sync())));
    ASSERT_TRUE(ok(world_.write(other, text_.substr(0, 4096), 4096)));  // says that it is durable
    ASSERT_TRUE(ok(world_.disk.flip_bit(path, bit)));
    if (restart) {
      world_.kill();
      ASSERT_TRUE(ok(world_.open()));
      EXPECT_EQ(world_.store->list_damaged(kTarget, {}, 9), std::vector{id_});
    } else {
      fill_log();
    }
    EXPECT_TRUE(ok(world_.store->health()));
    EXPECT_EQ(world_.get(id_), "(corrupt)");
    EXPECT_EQ(world_.read(id_, 12288, 4096), "(corrupt)");
    EXPECT_TRUE(world_.read(id_, 8192, 4096) == text_.substr(8192, 4096));
    EXPECT_TRUE(world_.read(other, 4096, 4096) == text_.substr(0, 4096));
    // Written anew, as by the chain.
    ASSERT_TRUE(ok(world_.replace(id_, text_)));
    EXPECT_TRUE(world_.get(id_) == text_);
    ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  }
}

// The same of a pending version, which moves on in the log.
TEST_F(LogTest, AFlippedBitOfAPendingVersionDamagesThatVersionOnly) {
  const std::string data = bytes_of(77, 4096);
  ASSERT_TRUE(ok(world_.pend(world_.update(id_, UpdateType::write, data, 8192))));
  ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  const auto [path, bit] = find_bit(world_.disk, data);
  ASSERT_TRUE(ok(world_.disk.flip_bit(path, bit)));
  for (int i = 0; i < 2; ++i) {
    fill_log();
    EXPECT_TRUE(ok(world_.store->health()));
    EXPECT_EQ(world_.get(id_, VersionKind::pending), "(corrupt)");
    EXPECT_TRUE(world_.get(id_) == text_);
  }
}

// Data that was not durable may be missing after a power loss, and its rows with it.
TEST_F(LogTest, DataThatIsTornAtTheEndOfTheLogIsTakenBack) {
  const std::string before = text_;
  ASSERT_TRUE(ok(overwrite(8192, 4096)));
  const auto [path, bit] = find_bit(world_.disk, text_.substr(8192, 4096));
  ASSERT_NE(path, "");
  world_.kill();
  ASSERT_TRUE(ok(world_.disk.flip_bit(path, bit)));
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_) == before);
}

TEST_F(LogTest, TheTargetIsRemovedWithItsDataInTheLog) {
  ASSERT_TRUE(ok(overwrite(8192, 4096)));
  ASSERT_TRUE(ok(world_.run(world_.store->remove_target(kTarget))));
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(kTarget, 70))));
  text_ = bytes_of(2, kMiB);
  ASSERT_TRUE(ok(world_.write(id_, text_)));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_) == text_);
}

// A disk of format 2 has no data in its log, and needs its new number before it gets some.
TEST(Format2, IsUpgradedWhenItIsOpened) {
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ChunkWorld world(n + 1);
    world.data_segments_max = 0;
    world.make();
    const ChunkId id{.inode = 1, .index = 0};
    std::string text = bytes_of(1, 300000);
    ASSERT_TRUE(ok(world.write(id, text)));
    ASSERT_TRUE(ok(world.write(id, "overlay", 5000)));
    text.replace(5000, 7, "overlay");
    ASSERT_TRUE(ok(world.run(world.store->sync())));
    world.kill();
    DiskIdentity identity = world.identity();
    identity.format = 2;
    ASSERT_TRUE(ok(write_identity(world.disk, kDir, identity)));
    world.data_segments_max = kDataSegmentsMax;
    world.disk.crash_at(world.disk.mutations() + n);
    const bool opened = world.open().ok();
    const bool crashed = world.disk.crashed();
    world.disk.crash_at(UINT64_MAX);
    if (crashed) {
      n % 2 == 0 ? world.power_loss() : world.kill();
      ASSERT_TRUE(ok(world.open()));
    } else {
      ASSERT_TRUE(opened);
    }
    EXPECT_EQ(read_identity(world.disk, kDir)->format, kDiskFormat);
    EXPECT_TRUE(world.get(id) == text);
    ASSERT_TRUE(ok(world.write(id, "logged", 9000)));
    text.replace(9000, 6, "logged");
    EXPECT_TRUE(world.get(id) == text);
    if (testing::Test::HasFailure() || !crashed) break;
  }
}

}  // namespace
}  // namespace ff::chunk

// I/O errors, full disks and flipped bits: operations fail with a proper error, existing data stays
// readable, and wrong data is never returned.
#include <gtest/gtest.h>

#include <cerrno>

#include "platform/base/point_step.h"
#include "storage/chunk/chunk_model.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

// A fixed script with all kinds of operations. Stops at the first error.
Result<void> script(ChunkWorld& world, ChunkModel& model) {
  const ChunkId a{.inode = 1, .index = 1};
  const ChunkId b{.inode = 1, .index = 2};
  const auto step = [&](ChunkId id, UpdateType change, const std::string& data,
                        uint64_t offset) -> Result<void> {
    ChunkSnapshot made = model.now(id);
    Update update = world.update(id, change, data, offset);
    std::string content = change == UpdateType::write ? made.content : data;
    if (change == UpdateType::write) {
      content.resize(std::max(content.size(), offset + data.size()));
      content.replace(offset, data.size(), data);
    }
    made.pending = {.version = update.version,
                    .length = content.size(),
                    .checksum = simd::crc32c(as_bytes(content)),
                    .removed = change == UpdateType::remove};
    made.pending_content = content;
    const auto stored = world.pend(update);
    model.ended(id, made, stored.ok());
    if (!stored) return stored.error();
    made = {.committed = *made.pending, .content = content, .pending = {}, .pending_content = {}};
    const auto done = world.run(world.store->commit(kTarget, id, update.version, 1));
    model.ended(id, made, done.ok());
    if (!done) return done.error();
    return {};
  };
  const auto sync = [&]() -> Result<void> {
    FF_TRY(world.run(world.store->sync()));
    for (auto& [id, past] : model.all()) past.durable = past.states.size() - 1;
    return {};
  };
  FF_TRY(step(a, UpdateType::write, bytes_of(1, 300000), 0));
  FF_TRY(step(b, UpdateType::write, bytes_of(2, 4096), 0));
  FF_TRY(sync());
  FF_TRY(step(a, UpdateType::write, bytes_of(3, 5000), 1000));
  FF_TRY(step(b, UpdateType::write, bytes_of(4, 70000), 4096));
  FF_TRY(step(a, UpdateType::write, bytes_of(5, 9000), 300000));
  FF_TRY(sync());
  FF_TRY(step(b, UpdateType::remove, "", 0));
  FF_TRY(step(a, UpdateType::replace, bytes_of(6, 200), 0));
  FF_TRY(sync());
  return step(b, UpdateType::write, "again", 0);
}

// Runs the script on a new disk for every n until it completes, with `interrupt` before I/O
// operation n; `check` verifies the result.
template <class Interrupt, class Check>
void at_every_operation(uint64_t seed, Interrupt interrupt, Check check) {
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << " operation " << n);
    ASSERT_LT(n, 2000u);
    ChunkWorld world(seed * 10000 + n);
    world.make();
    ChunkModel model(world);
    interrupt(world, world.disk.mutations() + n);
    const auto done = script(world, model);
    check(world, model, done);
    if (testing::Test::HasFailure() || done.ok()) return;
  }
}

TEST(ChunkFault, PowerIsLostAtEveryOperation) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    at_every_operation(
        seed, [](ChunkWorld& world, uint64_t at) { world.disk.crash_at(at); },
        [](ChunkWorld& world, ChunkModel& model, const Result<void>&) {
          world.power_loss();
          ASSERT_TRUE(ok(world.open()));
          model.check_after(true);
        });
  }
}

TEST(ChunkFault, TheProcessDiesAtEveryOperation) {
  at_every_operation(
      1, [](ChunkWorld& world, uint64_t at) { world.disk.crash_at(at); },
      [](ChunkWorld& world, ChunkModel& model, const Result<void>&) {
        world.kill();
        ASSERT_TRUE(ok(world.open()));
        model.check_after(false);
      });
}

TEST(ChunkFault, AnIoErrorAtEveryOperationEndsChangesAndNamesTheDisk) {
  at_every_operation(
      1, [](ChunkWorld& world, uint64_t at) { world.disk.fail_at(at, EIO); },
      [](ChunkWorld& world, ChunkModel& model, const Result<void>& done) {
        if (!done) {
          EXPECT_NE(done.error().message.find(kDir), std::string::npos) << done.error().message;
          const auto health = world.store->health();
          ASSERT_FALSE(health.ok());
          EXPECT_NE(health.error().message.find(kDir), std::string::npos);
          EXPECT_EQ(code_of(world.write({.inode = 3, .index = 3}, "x")), Errc::failed);
          EXPECT_EQ(code_of(world.run(world.store->sync())), Errc::failed);
          for (auto& [id, past] : model.all()) {
            EXPECT_TRUE(model.look(id) == past.states.back());  // reads still work
          }
        }
        world.kill();
        ASSERT_TRUE(ok(world.open()));
        model.check_after(false);
      });
}

TEST(ChunkFault, AFullDiskAtEveryOperationLosesNothingAndWorksAgain) {
  at_every_operation(
      1, [](ChunkWorld& world, uint64_t at) { world.disk.fail_at(at, ENOSPC); },
      [](ChunkWorld& world, ChunkModel& model, const Result<void>& done) {
        if (done) return;
        if (done.error().code == Errc::failed) {  // during a sync: unknown what was lost
          EXPECT_FALSE(world.store->health().ok());
          world.kill();
          ASSERT_TRUE(ok(world.open()));
          return model.check_after(false);
        }
        EXPECT_EQ(done.error().code, Errc::disk_full) << done.error().message;
        EXPECT_TRUE(ok(world.store->health()));
        model.check_now();
        EXPECT_TRUE(ok(world.write({.inode = 3, .index = 3}, "x")));
        EXPECT_TRUE(ok(world.run(world.store->sync())));
        world.power_loss();
        ASSERT_TRUE(ok(world.open()));
        EXPECT_EQ(world.get({.inode = 3, .index = 3}), "x");
        for (auto& [id, past] : model.all()) past.durable = past.states.size() - 1;
        model.check_after(true);
      });
}

TEST(ChunkFault, AFullDiskTakesNoNewBlocksButReadsAndRemoves) {
  ChunkWorld world(1);
  world.make();
  world.disk.set_capacity(600 * kMiB);
  const std::string text = bytes_of(1, 900 * kKiB);
  uint64_t stored = 0;
  Result<ChunkState> last = fail(Errc::failed, "none");
  for (; stored < 2000; ++stored) {
    last = world.write({.inode = 1, .index = stored}, text);
    if (!last) break;
  }
  EXPECT_EQ(code_of(last), Errc::disk_full);
  EXPECT_EQ(stored, 512u);  // two groups; a third would go past 98 %
  EXPECT_TRUE(ok(world.store->health()));
  EXPECT_TRUE(world.get({.inode = 1, .index = 500}) == text);
  ASSERT_TRUE(ok(world.remove({.inode = 1, .index = 500})));
  ASSERT_TRUE(ok(world.run(world.store->sync())));
  EXPECT_TRUE(ok(world.write({.inode = 1, .index = 600}, text)));
}

TEST(ChunkFault, OnAFullDiskTheSpaceOfRemovedChunksIsUsedAtOnce) {
  ChunkWorld world(1);
  world.make();
  world.disk.set_capacity(300 * kMiB);  // one group
  const std::string text = bytes_of(1, 900 * kKiB);
  uint64_t stored = 0;
  while (world.write({.inode = 1, .index = stored}, text)) ++stored;
  ASSERT_EQ(stored, 256u);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(ok(world.remove({.inode = 1, .index = i})));
    EXPECT_TRUE(ok(world.write({.inode = 2, .index = i}, text))) << i;
  }
  EXPECT_EQ(code_of(world.write({.inode = 2, .index = 5}, text)), Errc::disk_full);
  // Blocks of another size need the group.
  for (uint64_t i = 0; i < stored; ++i) {
    ASSERT_TRUE(ok(world.remove({.inode = i < 5 ? 2u : 1u, .index = i})));
  }
  world.chunk_size = kChunkMax;
  EXPECT_TRUE(ok(world.write({.inode = 3, .index = 0}, bytes_of(2, 5 * kMiB))));
  EXPECT_TRUE(world.get({.inode = 3, .index = 0}) == bytes_of(2, 5 * kMiB));
}

// Flips bits in many places: they must never be read as valid data.
TEST(ChunkFault, FlippedBitsInDataAreNeverRead) {
  ChunkWorld world(1);
  world.data_segments_max = 0;
  world.make();
  const ChunkId id{.inode = 5, .index = 2};
  std::string text = bytes_of(1, 700000);
  ASSERT_TRUE(ok(world.write(id, text)));
  // So many overlays that a full read is scattered, and a read of the end uses extents.
  constexpr uint64_t kOverwritten = 12;
  for (uint64_t i = 0; i < kOverwritten; ++i) {
    text.replace(5000 + i * 10000, 100, bytes_of(2 + i, 100));
    ASSERT_TRUE(ok(world.write(id, text.substr(5000 + i * 10000, 100), 5000 + i * 10000)));
  }
  EXPECT_EQ(world.get(id), text);
  world.close();
  SeededRng rng(1);
  for (const char* const file : {"1MiB.data", "256KiB.data", "1MiB.crc"}) {
    for (int i = 0; i < 20; ++i) {
      const std::string path = kDir + "/" + file;
      const bool crc = path.ends_with(".crc");
      const bool pieces = path.find("256") != std::string::npos;
      const uint64_t bytes = crc ? 171 * 4 : pieces ? kOverwritten * 4096 : 700000;
      const uint64_t bit = rng.below(bytes * 8);
      SCOPED_TRACE(testing::Message() << path << " bit " << bit);
      ASSERT_TRUE(ok(world.disk.flip_bit(path, bit)));
      ASSERT_TRUE(ok(world.open()));
      const std::string read = world.get(id);
      EXPECT_TRUE(read == "(corrupt)" || read == text);
      const auto page = world.run(world.store->scrub(kTarget, {}, 10));
      ASSERT_TRUE(ok(page));
      EXPECT_EQ(page->damaged.size(), read == text ? 0u : 1u);
      EXPECT_TRUE(ok(world.store->health()));
      // Undamaged units can be read.
      std::string rest = world.read(id, 690000, 10000);
      EXPECT_TRUE(rest == text.substr(690000, 10000) || rest == "(corrupt)");
      world.close();
      ASSERT_TRUE(ok(world.disk.flip_bit(path, bit)));
    }
  }
}

TEST(ChunkFault, ACorruptReadNamesChunkFileAndOffset) {
  ChunkWorld world(1);
  world.make();
  const ChunkId id{.inode = 5, .index = 2};
  ASSERT_TRUE(ok(world.write(id, bytes_of(1, 10000))));
  ASSERT_TRUE(ok(world.disk.flip_bit(kDir + "/64KiB.data", 5000 * 8)));
  std::string text(10000, '\0');
  const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
  const ReadRequest request{.target = kTarget, .id = id};
  const auto read = world.run(world.store->read(request, into));
  ASSERT_EQ(code_of(read), Errc::corrupt);
  for (const char* const part : {"target 7", "chunk 5.2", "64KiB.data", "offset 4096"}) {
    EXPECT_NE(read.error().message.find(part), std::string::npos) << read.error().message;
  }
  // Other units are intact; an update that keeps the damaged unit fails, one that replaces it
  // succeeds.
  EXPECT_EQ(world.read(id, 0, 4096).size(), 4096u);
  EXPECT_EQ(code_of(world.pend(world.update(id, UpdateType::write, "x", 5000))), Errc::corrupt);
  EXPECT_TRUE(ok(world.replace(id, "new")));
  EXPECT_EQ(world.get(id), "new");
}

TEST(ChunkFault, FlippedBitsInTheMetadataAreRefusedOrHarmless) {
  for (uint64_t seed = 1; seed <= 60; seed += kPointStep) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ChunkWorld world(seed);
    world.make();
    std::map<ChunkId, std::string> texts;
    for (uint64_t i = 0; i < 20; ++i) {
      const ChunkId id{.inode = 1, .index = i};
      texts[id] = bytes_of(i, 100 + i);
      ASSERT_TRUE(ok(world.write(id, texts[id])));
    }
    world.close();
    const auto files = metadata_files(world.disk, "chunks.");
    SeededRng dice(seed);
    const std::string path = files[dice.below(files.size())];
    // The end of a segment of the log is empty.
    const uint64_t size = std::min<uint64_t>(world.disk.info(path)->size, 20 * kKiB);
    const uint64_t bit = dice.below(size * 8);
    SCOPED_TRACE(testing::Message() << path << " bit " << bit);
    ASSERT_TRUE(ok(world.disk.flip_bit(path, bit)));
    const auto opened = world.open();
    if (!opened) {
      const Errc code = opened.error().code;
      EXPECT_TRUE(code == Errc::corrupt || code == Errc::newer_format) << opened.error().message;
      continue;
    }
    for (const auto& [id, text] : texts) EXPECT_TRUE(world.get(id) == text) << to_string(id);
  }
}

TEST(ChunkFault, MetadataThatIsMissingIsNotMadeAfresh) {
  ChunkWorld world(1);
  world.make();
  world.close();
  const std::string log = first_segment(world.disk);
  for (const std::string& path : metadata_files(world.disk, "chunks.")) {
    SCOPED_TRACE(path);
    const bool needed = path.find("chunks.log-") == std::string::npos || path == log;
    ASSERT_TRUE(ok(world.disk.rename(path, "/away")));
    if (needed) {
      EXPECT_EQ(code_of(world.open()), Errc::corrupt);
    }
    ASSERT_TRUE(ok(world.disk.rename("/away", path)));
  }
  EXPECT_TRUE(ok(world.open()));
}

}  // namespace
}  // namespace ff::chunk

// Verify: intact checkpoints are marked, one flipped bit anywhere is found and named, chunks are
// read once, and samples have their size.
#include "training/checkpoint/load/verify.h"

#include <gtest/gtest.h>

#include "training/checkpoint/fixture.h"
#include "training/checkpoint/sim_store.h"

namespace ff::checkpoint {
namespace {

Content three_files() {
  return {{"a", noise(1, 5000)}, {"b", noise(2, 9000)}, {"c", noise(3, 100)}};
}

TEST(VerifyTest, MarksWhatIsIntact) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 3));
  EXPECT_FALSE(sim.verified(3));
  const auto report = sim.verify({.names = {"default"}, .ff_version = "1.2"});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->intact, (std::vector<StepName>{{"default", 3}}));
  EXPECT_TRUE(report->damaged.empty() && report->damage.empty());
  EXPECT_EQ(report->chunks, 3u);
  EXPECT_EQ(report->chunks_total, 3u);
  EXPECT_EQ(report->bytes, 14100u);
  EXPECT_EQ(sim.progress.total, 14100u);
  const auto mark = read_verified(sim.disk, sim.open(), {"default", 3});
  FF_ASSERT_OK(mark);
  EXPECT_EQ((*mark)->verified.ff_version, "1.2");
  EXPECT_TRUE(sim.verified(3));
}

TEST(VerifyTest, ChunksThatAreSharedAreReadOnce) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  auto changed = three_files();
  changed["b"] = noise(4, 9000);
  FF_ASSERT_OK(sim.save(changed, 2));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->intact.size(), 2u);
  EXPECT_EQ(report->chunks, 4u);
  EXPECT_EQ(report->chunks_total, 4u);
}

TEST(VerifyTest, DamageOfASharedChunkIsNamedForEachCheckpoint) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  auto changed = three_files();
  changed["c"] = noise(4, 50);
  FF_ASSERT_OK(sim.save(changed, 2));
  const auto chunk = sim.chunks_of(1).at(1);  // of file b
  FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(chunk), 8 * 5000 + 3));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->damaged, (std::vector<StepName>{{"default", 1}, {"default", 2}}));
  EXPECT_TRUE(report->intact.empty());
  ASSERT_EQ(report->damage.size(), 2u);
  EXPECT_EQ(report->damage[0].where, "default@1: chunk " + chunk.hex());
  EXPECT_EQ(report->damage[1].where, "default@2: chunk " + chunk.hex());
  for (const auto& damage : report->damage) {
    EXPECT_EQ(damage.holds, "file 'b'");
    EXPECT_FALSE(damage.reason.empty());
  }
  EXPECT_FALSE(sim.verified(1) || sim.verified(2));
}

// Damaged chunks are moved aside, the checkpoint is listed as damaged, and a save of the same data
// repairs it.
TEST(VerifyTest, DamagedChunksAreMovedAside) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  FF_ASSERT_OK(sim.verify_all());
  const auto chunk = sim.chunks_of(1).at(1);
  const auto store = sim.open();
  const StepName name{"default", 1};
  FF_ASSERT_OK(sim.disk.flip_bit(store.chunk_path(chunk), 8 * 5000));
  const auto found = sim.verify_all();
  FF_ASSERT_OK(found);
  EXPECT_EQ(found->bad_chunks, std::vector<simd::Digest>{chunk});
  EXPECT_EQ(found->set_aside, 1u);
  EXPECT_FALSE(*io::exists(sim.disk, store.chunk_path(chunk)));
  EXPECT_TRUE(*io::exists(sim.disk, store.set_aside_path(chunk)));
  const auto info = step_info(sim.disk, store, name);
  FF_ASSERT_OK(info);
  EXPECT_TRUE(info->summary && !info->verified);
  EXPECT_TRUE(info->damage.starts_with("1 damaged")) << info->damage;
  const auto again = sim.verify_all();
  FF_ASSERT_OK(again);
  EXPECT_EQ(again->set_aside, 0u);
  EXPECT_EQ(again->bad_chunks.size(), 1u);
  const auto saved = sim.save(three_files(), 2);
  FF_ASSERT_OK(saved);
  EXPECT_EQ(saved->chunks_new, 1u);
  EXPECT_EQ(saved->chunks_reused, 2u);
  EXPECT_TRUE(sim.sound());
  EXPECT_TRUE(step_info(sim.disk, store, name)->damage.empty());
  EXPECT_TRUE(sim.verified(1) && sim.verified(2));
  FF_ASSERT_OK(sim.prune({}));
  EXPECT_EQ(sim.entries("trash"), 1u);  // for the grace period
  sim.clock.advance(2 * kHour);
  FF_ASSERT_OK(sim.prune({}));
  EXPECT_EQ(sim.entries("trash"), 0u);
}

TEST(VerifyTest, TheSameStepSavedAgainRepairsIt) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(sim.chunks_of(1).at(1)), 8 * 5000));
  FF_ASSERT_OK(sim.verify_all());
  auto changed = three_files();
  changed["a"] = noise(40, 5000);
  EXPECT_EQ(sim.save(changed, 1).error().code, Errc::refused);
  const auto saved = sim.save(three_files(), 1);
  FF_ASSERT_OK(saved);
  EXPECT_EQ(saved->outcome, SaveOutcome::already_there);
  EXPECT_EQ(saved->chunks_new, 1u);
  EXPECT_TRUE(sim.sound());
}

// A saver that writes the damaged chunk again at any point of a verify keeps its new file, also if
// the verify is killed there.
TEST(VerifyTest, ASaveAtAnyPointWhileChunksAreMovedAside) {
  for (const bool killed : {false, true}) {
    bool reached = true;
    for (uint64_t at = 0; reached; at++) {
      SCOPED_TRACE(fmt::format("{} at {}", killed ? "killed" : "runs", at));
      SimStore sim(at);
      FF_ASSERT_OK(sim.save(three_files(), 1));
      const auto chunk = sim.chunks_of(1).at(1);
      // Its head is damaged, so a saver sees it, too.
      FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(chunk), 8 * 100));
      HookDisk disk(sim.disk);
      reached = false;
      disk.hook = [&](uint64_t number) {
        if (number != at) return;
        reached = true;
        EXPECT_TRUE(io::ok(sim.save(three_files(), 2)));
        if (killed) sim.disk.crash_at(sim.disk.mutations());
      };
      auto ctx = sim.context(disk);
      (void)verify(ctx, kStore, {.names = {}, .all = true});
      if (killed) sim.disk.kill();
      sim.disk.crash_at(UINT64_MAX);
      if (!reached) {
        FF_ASSERT_OK(sim.save(three_files(), 2));
      }
      EXPECT_TRUE(sim.sound());
    }
  }
}

TEST(VerifyTest, MissingChunksAndChunksInTheTrash) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  const auto store = sim.open();
  const auto chunks = sim.chunks_of(1);
  FF_ASSERT_OK(sim.disk.rename(store.chunk_path(chunks[0]), store.trash_path(chunks[0])));
  EXPECT_TRUE(sim.sound());  // a prune that was killed
  FF_ASSERT_OK(sim.disk.remove(store.chunk_path(chunks[2])));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_EQ(report->damage[0].holds, "file 'c'");
}

// Collects all files below `dir`.
void files_below(io::Disk& disk, const std::string& dir, std::vector<std::string>& out) {
  const auto entries = disk.list(dir).value();
  for (const auto& entry : entries) {
    const std::string path = io::join(dir, entry.name);
    if (entry.kind == io::FileKind::directory) {
      files_below(disk, path, out);
    } else {
      out.push_back(path);
    }
  }
}

TEST(VerifyTest, OneFlippedBitAnywhereIsFoundAndNamed) {
  SimStore sim(1);
  const std::string model = make_safetensors({{"first.weight", "F32", {64}, noise(5, 256)},
                                              {"second.weight", "U8", {1000}, noise(6, 1000)}});
  FF_ASSERT_OK(sim.save({{"model.safetensors", model}, {"other", noise(7, 6000)}}, 12));
  FF_ASSERT_OK(sim.verify_all());
  std::vector<std::string> files;
  files_below(sim.disk, kStore, files);
  ASSERT_EQ(files.size(), 3u + 4u);  // header and small tensors, one chunk each file of the rest
  SeededRng rng(2);
  for (const auto& file : files) {
    const uint64_t bits = 8 * sim.disk.info(file)->size;
    const uint64_t tries = std::min<uint64_t>(bits, 400);
    for (uint64_t i = 0; i < tries; i++) {
      const uint64_t bit = i + 1 < tries ? rng.below(bits) : bits - 1;
      SCOPED_TRACE(fmt::format("{} bit {}", file, bit));
      const std::string content = io::get(sim.disk, file);
      FF_ASSERT_OK(sim.disk.flip_bit(file, bit));
      const auto report = sim.verify_all();
      FF_ASSERT_OK(report);
      ASSERT_EQ(report->damage.size(), 1u);
      const auto& damage = report->damage[0];
      ASSERT_NE((damage.where + damage.reason).find(io::base_name(file)), std::string::npos)
          << damage.where << ": " << damage.reason;
      ASSERT_FALSE(damage.holds.empty());
      // A mark that was damaged has been written anew by now; that of what was damaged is gone.
      if (file.ends_with("/verified")) continue;
      FF_ASSERT_OK(io::put(sim.disk, file, content));  // a damaged chunk is not there any more
      FF_ASSERT_OK(sim.verify_all());
    }
  }
  EXPECT_TRUE(sim.sound());
}

TEST(VerifyTest, ADamagedIndexIsNamedWithItsLine) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  FF_ASSERT_OK(sim.save({{"a", noise(1, 5000)}}, 2));
  const std::string index = sim.open().index_path({"default", 1});
  const std::string text = io::get(sim.disk, index);
  const size_t third_line = text.find('\n', text.find('\n') + 1) + 10;
  FF_ASSERT_OK(sim.disk.flip_bit(index, 8 * third_line));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_EQ(report->damage[0].where, index);
  EXPECT_TRUE(report->damage[0].reason.starts_with("line 3:")) << report->damage[0].reason;
  EXPECT_EQ(report->damaged, (std::vector<StepName>{{"default", 1}}));
  EXPECT_EQ(report->intact, (std::vector<StepName>{{"default", 2}}));
}

TEST(VerifyTest, AnIndexInTheWrongPlaceIsDamage) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  FF_ASSERT_OK(sim.save({{"a", noise(9, 100)}}, 2));
  const auto store = sim.open();
  FF_ASSERT_OK(sim.disk.rename(store.index_path({"default", 1}), store.index_path({"default", 2})));
  const auto report = sim.verify({.names = {"default@2"}});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_NE(report->damage[0].reason.find("default@1"), std::string::npos);
}

// Another extent of a chunk that was read already, with its own CRC, is checked too.
TEST(VerifyTest, EveryExtentIsChecked) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  const auto store = sim.open();
  const auto chunk = sim.chunks_of(1).at(0);
  const StepName crafted{"default", 2};
  FF_ASSERT_OK(io::make_dirs(sim.disk, store.step_dir(crafted)));
  HeaderRecord header;
  header.run = "default";
  header.step = 2;
  auto writer = IndexWriter::create(sim.disk, store.index_path(crafted), header);
  FF_ASSERT_OK(writer);
  FileRecord file;
  file.name = "part";
  file.size = 10;
  file.extents = {{.chunk = chunk, .offset = 7, .length = 10, .crc = 0x12345678}};
  FF_ASSERT_OK(writer->add(file));
  FF_ASSERT_OK(writer->finish());
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->intact, (std::vector<StepName>{{"default", 1}}));
  EXPECT_EQ(report->damaged, (std::vector<StepName>{{"default", 2}}));
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_EQ(report->damage[0].holds, "file 'part'");
}

TEST(VerifyTest, ASampleReadsItsShareAndMarksNothing) {
  Content content;
  for (int i = 0; i < 40; i++) content[fmt::format("f{}", i)] = noise(100 + i, 3000);
  size_t found = 0;
  for (uint64_t seed = 0; seed < 20; seed++) {
    SCOPED_TRACE(seed);
    SimStore sim(seed);
    FF_ASSERT_OK(sim.save(content, 1));
    FF_ASSERT_OK(sim.disk.flip_bit(sim.open().chunk_path(sim.chunks_of(1).at(7)), 8 * 4100));
    const auto report = sim.verify({.names = {"default@1"}, .sample = 0.26});
    FF_ASSERT_OK(report);
    EXPECT_EQ(report->chunks, 11u);  // rounded up
    EXPECT_EQ(report->chunks_total, 40u);
    EXPECT_EQ(report->bytes, 33000u);
    EXPECT_FALSE(sim.verified(1));
    found += report->damage.size();
  }
  EXPECT_GT(found, 0u);  // other chunks from other seeds
  EXPECT_LT(found, 20u);
}

TEST(VerifyTest, AReadOnlyStoreIsVerifiedWithoutAMark) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  sim.disk.set_read_only(true);
  auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->intact.size(), 1u);
  EXPECT_FALSE(sim.verified(1));
  const std::string chunk = sim.open().chunk_path(sim.chunks_of(1).at(0));
  sim.disk.set_read_only(false);
  FF_ASSERT_OK(sim.disk.flip_bit(chunk, 8 * 5000));
  sim.disk.set_read_only(true);
  report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->damaged.size(), 1u);
  EXPECT_EQ(report->set_aside, 0u);
  EXPECT_TRUE(*io::exists(sim.disk, chunk));
}

TEST(VerifyTest, WrongMarks) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  FF_ASSERT_OK(sim.save({{"a", noise(9, 100)}}, 2));
  const auto store = sim.open();
  const std::string latest = store.latest_path("default");
  const std::string before = io::get(sim.disk, latest);
  FF_ASSERT_OK(sim.disk.remove(latest));
  EXPECT_TRUE(sim.sound());  // a crash before the mark was written
  for (const std::string& text : {std::string("3 ") + std::string(32, '0') + "\n",  // no such step
                                  "1" + before.substr(1), std::string("x"), std::string()}) {
    SCOPED_TRACE(text);
    FF_ASSERT_OK(io::put(sim.disk, latest, text));
    const auto report = sim.verify_all();
    FF_ASSERT_OK(report);
    ASSERT_EQ(report->damage.size(), 1u);
    EXPECT_EQ(report->damage[0].where, latest);
    EXPECT_EQ(report->intact.size(), 2u);
  }
  FF_ASSERT_OK(io::put(sim.disk, latest, before));
  FF_ASSERT_OK(io::put(sim.disk, store.verified_path({"default", 1}), "{}"));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->damage.size(), 1u);
  EXPECT_EQ(report->damage[0].where, store.verified_path({"default", 1}));
  EXPECT_TRUE(sim.sound());  // and it was written anew
}

// A save with --replace or a forget at any point of a verify is no damage.
TEST(VerifyTest, AHalfCreatedStoreIsEmpty) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save({{"a", noise(1, 4000)}}, 1));
  FF_ASSERT_OK(io::remove_tree(sim.disk, sim.open().runs_dir()));
  const auto report = sim.verify_all();
  FF_ASSERT_OK(report);
  EXPECT_TRUE(report->intact.empty() && report->damage.empty());
}

TEST(VerifyTest, ConcurrentChangesAreNoDamage) {
  bool reached = true;
  for (uint64_t at = 0; reached; at++) {
    SCOPED_TRACE(at);
    SimStore sim(at);
    for (uint64_t step : {1, 2, 3}) {
      FF_ASSERT_OK(sim.save({{"a", noise(step, 4000)}, {"s", noise(0, 4000)}}, step));
    }
    HookDisk disk(sim.disk);
    reached = false;
    disk.hook = [&](uint64_t number) {
      if (number != at) return;
      reached = true;
      EXPECT_TRUE(io::ok(sim.save({{"a", noise(30, 4000)}}, 3, {.replace = true})));
      EXPECT_TRUE(io::ok(sim.forget({.keep_last = 1, .apply = true})));
    };
    auto ctx = sim.context(disk);
    const auto report = verify(ctx, kStore, {.names = {}, .all = true});
    FF_ASSERT_OK(report);
    for (const auto& damage : report->damage) ADD_FAILURE() << damage.where << damage.reason;
    EXPECT_TRUE(sim.sound());
  }
}

TEST(VerifyTest, WrongUse) {
  SimStore sim(1);
  FF_ASSERT_OK(sim.save(three_files(), 1));
  EXPECT_EQ(sim.verify({}).error().code, Errc::usage);
  EXPECT_EQ(sim.verify({.names = {"default@9"}}).error().code, Errc::not_found);
  EXPECT_EQ(sim.verify({.names = {}, .all = true, .sample = 0}).error().code, Errc::usage);
  EXPECT_EQ(sim.verify({.names = {}, .all = true, .sample = 1.5}).error().code, Errc::usage);
}

class VerifyRealTest : public CheckpointTest {};

TEST_F(VerifyRealTest, SeveralThreadsFindAllDamage) {
  fs::create_directories(path("in"));
  for (int i = 0; i < 30; i++) {
    write_whole(path(fmt::format("in/{}", i)), noise(i, 50000));
  }
  FF_ASSERT_OK(save({path("in")}));
  auto ctx = context();
  auto report = verify(ctx, store(), {.names = {"default"}});
  FF_ASSERT_OK(report);
  EXPECT_EQ(report->chunks, 30u);
  EXPECT_EQ(progress_.done - 1500000u, report->bytes);  // after those of the save
  const auto chunks = chunk_files();
  ASSERT_EQ(chunks.size(), 30u);
  for (const size_t i : {3, 14, 15, 29}) flip_bit(chunks[i], 8 * 9000 + i);
  report = verify(ctx, store(), {.names = {"default"}});
  FF_ASSERT_OK(report);
  ASSERT_EQ(report->damage.size(), 4u);
  for (const auto& damage : report->damage) {
    EXPECT_TRUE(damage.holds.starts_with("file 'in/")) << damage.holds;
  }
}

}  // namespace
}  // namespace ff::checkpoint

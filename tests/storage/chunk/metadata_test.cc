// The metadata of a disk: whatever ends the process, a prefix of the changes is there, and nothing
// that was durable is missing; damage of log, runs and index is found.
#include "storage/chunk/metadata.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "platform/io/test_bytes.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"
#include "storage/chunk/chunk_world.h"
#include "storage/chunk/row_source.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

using Rows = std::map<std::string, std::string>;

class MetadataWorld {
 public:
  explicit MetadataWorld(uint64_t seed) : rng(seed), disk(seed, world.clock()) {
    FF_CHECK(disk.make_dir(kDir, 0777).ok() && disk.sync_dir("/").ok());
  }
  MetadataOptions options() {
    return {.disk = disk,
            .dir = kDir,
            .disk_id = "disk-1",
            .rng = rng,
            .log = {.segment_bytes = 12 * kKiB, .checkpoint_segments = 1}};
  }
  Result<void> create() {
    const LogRows none;
    return Metadata::create(options(), *none.source());
  }
  // Opens it and reads all rows.
  Result<void> open() {
    FF_TRY(auto opened, Metadata::open(options()));
    found.clear();
    FF_TRY(opened->scan([&](RowKind, std::string_view key, std::string_view body) {
      EXPECT_TRUE(found.empty() || found.rbegin()->first < key);
      found.emplace(key, body);
      return Result<void>();
    }));
    FF_TRY(opened->start());
    metadata = std::move(opened);
    return {};
  }

  // A random batch; changes `rows` likewise. Each batch leaves another state.
  RowChanges batch(Rows& rows) {
    const auto key = [&] { return key_of(RowKind::chunk, {rng.below(30)}); };
    RowChanges changes;
    for (uint64_t i = 1 + rng.below(4); i > 0; --i) {
      switch (rng.below(6)) {
        case 0: changes.push_back({.key = key(), .body = std::nullopt}); break;
        case 1: changes.push_back({.key = key(), .body = std::nullopt, .end = key()}); break;
        default: changes.push_back({.key = key(), .body = std::string(rng.below(600), 'x')});
      }
    }
    changes.push_back({.key = key_of(RowKind::disk, {}), .body = std::to_string(++batches_)});
    for (const RowChange& change : changes) {
      if (change.body) rows[change.key] = *change.body;
      if (!change.body && change.end.empty()) rows.erase(change.key);
      if (change.end <= change.key) continue;
      rows.erase(rows.lower_bound(change.key), rows.lower_bound(change.end));
    }
    return changes;
  }

  sim::SimWorld world;
  SeededRng rng;
  sim::SimDisk disk;
  std::unique_ptr<Metadata> metadata;
  Rows found;

 private:
  uint64_t batches_ = 0;
};

// Runs batches, syncs and checkpoints until the disk crashes, at operation `n`.
class MetadataCrash {
 public:
  explicit MetadataCrash(uint64_t seed) : at(seed) {}

  void run(uint64_t operation) {
    at.disk.crash_at(at.disk.mutations() + operation);
    for (int i = 0; i < 60 && !at.disk.crashed(); ++i) {
      Rows next = states.back();
      const RowChanges changes = at.batch(next);
      states.push_back(std::move(next));
      if (!at.metadata->apply(changes)) break;
      acked = states.size() - 1;
      if (at.rng.below(4) == 0 && at.metadata->flush()) durable = acked;
      at.metadata->checkpoint_if_needed();
    }
  }
  // Opens the disk after the crash; the rows are those after one of the allowed batches.
  void check(bool power_lost) {
    at.disk.crash();
    at.metadata.reset();
    power_lost ? at.disk.power_loss() : at.disk.kill();
    at.disk.crash_at(UINT64_MAX);
    ASSERT_TRUE(ok(at.open()));
    const size_t first = power_lost ? durable : acked;
    size_t state = first;
    while (state < states.size() && states[state] != at.found) ++state;
    ASSERT_LT(state, states.size()) << "of batches " << first << " to " << states.size();
    states = {at.found};
    acked = durable = 0;
  }

  MetadataWorld at;
  std::vector<Rows> states{Rows()};
  size_t acked = 0;
  size_t durable = 0;
};

TEST(Metadata, APrefixOfTheChangesSurvivesACrashAtEveryOperation) {
  for (uint64_t n = 0; n < 240; ++n) {
    for (const bool power_lost : {false, true}) {
      SCOPED_TRACE(testing::Message() << "operation " << n << " power lost " << power_lost);
      MetadataCrash crash(n + 1);
      ASSERT_TRUE(ok(crash.at.create()));
      ASSERT_TRUE(ok(crash.at.open()));
      for (int life = 0; life < 3; ++life) {
        SCOPED_TRACE(life);
        crash.run(life == 0 ? n : crash.at.rng.below(100));
        crash.check(power_lost);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Metadata, ACrashWhileItIsOpenedLosesNothing) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    MetadataCrash crash(seed);
    ASSERT_TRUE(ok(crash.at.create()));
    ASSERT_TRUE(ok(crash.at.open()));
    crash.run(UINT64_MAX / 2);
    ASSERT_TRUE(ok(crash.at.metadata->flush()));
    crash.durable = crash.acked;
    for (uint64_t n = 0; n < 20; ++n) {
      SCOPED_TRACE(n);
      crash.at.metadata.reset();
      crash.at.disk.crash_at(crash.at.disk.mutations() + n);
      (void)crash.at.open();
      const Rows last = crash.states.back();
      crash.check(crash.at.rng.below(2) == 0);
      if (testing::Test::HasFatalFailure()) return;
      EXPECT_TRUE(crash.at.found == last);
    }
  }
}

// A bit that flips in what is durable is found, also when entries or segments follow.
TEST(Metadata, AFlippedBitInDurableEntriesIsFound) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    MetadataWorld at(seed);
    ASSERT_TRUE(ok(at.create()));
    ASSERT_TRUE(ok(at.open()));
    Rows rows;
    uint64_t first_end = 0;
    for (uint64_t i = 0; i < 4 + seed; ++i) {
      ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
      ASSERT_TRUE(ok(at.metadata->flush()));
      if (i == 0) first_end = at.metadata->position();
    }
    ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
    at.metadata.reset();
    const auto index = read_checkpoint(at.disk, kDir);
    ASSERT_TRUE(ok(index));
    const uint64_t bit = kSegmentDataAt * 8 + at.rng.below((first_end - index->lsn) * 8);
    ASSERT_TRUE(ok(at.disk.flip_bit(first_segment(at.disk), bit)));
    EXPECT_EQ(code_of(at.open()), Errc::corrupt);
  }
}

TEST(Metadata, AFlippedBitInARunIsFound) {
  MetadataWorld at(1);
  ASSERT_TRUE(ok(at.create()));
  ASSERT_TRUE(ok(at.open()));
  Rows rows;
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
  at.metadata.reset();
  ASSERT_TRUE(ok(at.open()));  // the log becomes a run
  at.metadata.reset();
  const auto runs = metadata_files(at.disk, "chunks.run-");
  ASSERT_EQ(runs.size(), 1u);
  const uint64_t size = at.disk.info(runs[0])->size;
  for (uint64_t bit = 0; bit < size * 8; bit += 1 + at.rng.below(200)) {
    SCOPED_TRACE(bit);
    ASSERT_TRUE(ok(at.disk.flip_bit(runs[0], bit)));
    ASSERT_EQ(code_of(at.open()), Errc::corrupt);
    ASSERT_TRUE(ok(at.disk.flip_bit(runs[0], bit)));
  }
  ASSERT_TRUE(ok(at.open()));
  EXPECT_TRUE(at.found == rows);
}

TEST(Metadata, AFullDiskKeepsTheLogUntilThereIsRoom) {
  MetadataWorld at(1);
  ASSERT_TRUE(ok(at.create()));
  ASSERT_TRUE(ok(at.open()));
  Rows rows;
  const auto fill = [&] {
    while (!at.metadata->needs_checkpoint()) ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
  };
  fill();
  CheckpointJob job = at.metadata->begin_checkpoint(at.metadata->segment());
  at.metadata->finish_checkpoint(fail(Errc::disk_full, "full"));
  EXPECT_FALSE(at.metadata->needs_checkpoint());
  fill();
  at.metadata->checkpoint_if_needed();
  EXPECT_FALSE(at.metadata->needs_checkpoint());
  at.metadata.reset();
  ASSERT_TRUE(ok(at.open()));
  EXPECT_TRUE(at.found == rows);
}

TEST(Metadata, TheFilesOfTheLogAreUsedAgain) {
  MetadataWorld at(1);
  ASSERT_TRUE(ok(at.create()));
  ASSERT_TRUE(ok(at.open()));
  Rows rows;
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
    at.metadata->checkpoint_if_needed();
  }
  EXPECT_EQ(metadata_files(at.disk, "chunks.log-").size(), 2u);
  EXPECT_LE(metadata_files(at.disk, "chunks.run-").size(), 4u);
  EXPECT_GT(at.metadata->position(), 50 * 12 * kKiB);
  EXPECT_LT(at.metadata->stored_bytes(), 100 * kKiB);
  for (int i = 0; i < 4; ++i) {
    at.metadata.reset();
    ASSERT_TRUE(ok(at.open()));
    EXPECT_TRUE(at.found == rows);
  }
  EXPECT_EQ(metadata_files(at.disk, "chunks.log-").size(), 2u);
}

// An entry of a failed write is not found later behind a shorter one.
TEST(Metadata, AFailedWriteLeavesNothingBehind) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    MetadataWorld at(seed);
    ASSERT_TRUE(ok(at.create()));
    ASSERT_TRUE(ok(at.open()));
    Rows rows;
    for (int i = 0; i < 30; ++i) {
      Rows next = rows;
      const RowChanges changes = at.batch(next);
      if (at.rng.below(3) == 0) at.disk.fail_at(at.disk.mutations(), ENOSPC);
      if (at.metadata->apply(changes)) rows = next;
    }
    ASSERT_TRUE(ok(at.metadata->apply(at.batch(rows))));
    at.metadata.reset();
    ASSERT_TRUE(ok(at.open()));
    EXPECT_TRUE(at.found == rows);
  }
}

TEST(RowMerge, NewerRowsAndRangesReplaceOlderOnes) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    MetadataWorld at(seed);
    Rows rows;
    std::vector<LogRows> layers(1 + at.rng.below(4));
    for (LogRows& layer : layers) {
      for (uint64_t i = at.rng.below(12); i > 0; --i) {
        std::string entry;
        for (const RowChange& change : at.batch(rows)) append_row(entry, view_of(change));
        ASSERT_TRUE(ok(layer.apply(entry)));
      }
    }
    // All at once, or first the newer ones among themselves, as checkpoints do.
    LogRows merged;
    const size_t split = at.rng.below(layers.size());
    std::vector<std::unique_ptr<RowSource>> newer;
    for (size_t i = layers.size(); i > split; --i) newer.push_back(layers[i - 1].source());
    RowMerge of_newer(std::move(newer), split == 0);
    std::string entry;
    for (auto row = of_newer.next(); row && *row; row = of_newer.next()) append_row(entry, **row);
    ASSERT_TRUE(ok(merged.apply(entry)));
    std::vector<std::unique_ptr<RowSource>> all;
    all.push_back(merged.source());
    for (size_t i = split; i > 0; --i) all.push_back(layers[i - 1].source());
    RowMerge merge(std::move(all), true);
    Rows found;
    for (auto row = merge.next(); row && *row; row = merge.next()) {
      found.emplace((*row)->key, (*row)->value);
    }
    EXPECT_TRUE(found == rows);
  }
}

TEST(Checkpoint, TheIndexRoundTripsAndEveryFlippedBitShows) {
  const Checkpoint checkpoint{.disk = "disk-1",
                              .segment = 7,
                              .lsn = 123456,
                              .runs = {{.number = 3, .bytes = 99, .crc = 5}, {.number = 9}}};
  const std::string line = to_line(checkpoint);
  const auto parsed = parse_checkpoint(line, "x");
  ASSERT_TRUE(ok(parsed));
  EXPECT_EQ(*parsed, checkpoint);
  const Checkpoint fresh{.disk = "d"};
  EXPECT_EQ(*parse_checkpoint(to_line(fresh), "x"), fresh);
  for (size_t bit = 0; bit < line.size() * 8; ++bit) {
    std::string flipped = line;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(parse_checkpoint(flipped, "x").ok()) << bit;
  }
}

TEST(MetadataLogLimits, SuitTheDisk) {
  EXPECT_EQ(metadata_log_limits(0).checkpoint_segments, 8u);
  EXPECT_EQ(metadata_log_limits(32 * kGiB).checkpoint_segments, 8u);
  EXPECT_EQ(metadata_log_limits(128 * kGiB).checkpoint_segments, 32u);
  const MetadataLogLimits largest = metadata_log_limits(16 * 1024 * kGiB);
  EXPECT_EQ(largest.checkpoint_segments * largest.segment_bytes, 512 * kMiB);
  EXPECT_EQ(largest.data_segments_max, 80u);
}

}  // namespace
}  // namespace ff::chunk

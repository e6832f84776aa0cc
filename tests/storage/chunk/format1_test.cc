// Disks of format 1, whose metadata is in SQLite: the upgrade keeps everything, whenever the
// process is killed or the power fails.
#include "storage/chunk/format1.h"

#include <gtest/gtest.h>

#include "platform/db/database.h"
#include "platform/io/files.h"
#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

constexpr ChunkId kWhole{1, 0};
constexpr ChunkId kPending{1, 1};
constexpr ChunkId kRemoved{2, 0};

// What an ff with disk format 1 has written.
Result<void> write_sqlite(ChunkWorld& world, const RowChanges& rows) {
  constexpr const char* kMigrations[] = {
      "CREATE TABLE row (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID",
  };
  SeededRng rng(1);
  const db::DatabaseOptions options{
      .disk = &world.disk, .rng = &rng, .synchronous = db::Synchronous::normal};
  FF_TRY(auto database,
         db::Database::open(format1_path(kDir), kMigrations, world.world.clock(), options));
  FF_TRY(auto put, database.prepare("REPLACE INTO row (key, value) VALUES (?, ?)"));
  FF_TRY(auto transaction, database.begin());
  for (const RowChange& row : rows) {
    std::string value;
    append_le(value, simd::crc32c(as_bytes(*row.body), simd::crc32c(as_bytes(row.key))));
    value += *row.body;
    put.bind(as_bytes(row.key), as_bytes(value));
    FF_TRY(put.run());
  }
  FF_TRY(transaction.commit());
  return database.flush();
}

// Makes a disk of format 1 of a store that is not open.
void downgrade(ChunkWorld& world) {
  RowChanges rows;
  {
    auto metadata =
        Metadata::open({.disk = world.disk, .dir = kDir, .disk_id = {}, .rng = world.rng});
    ASSERT_TRUE(ok(metadata));
    ASSERT_TRUE(ok((*metadata)->scan([&](RowKind, std::string_view key, std::string_view body) {
      rows.push_back({.key = std::string(key), .body = std::string(body)});
      return Result<void>();
    })));
  }
  for (const std::string& path : metadata_files(world.disk, "chunks.")) {
    ASSERT_TRUE(ok(world.disk.remove(path)));
  }
  ASSERT_TRUE(ok(write_sqlite(world, rows)));
  DiskIdentity identity = world.identity();
  identity.format = 1;
  ASSERT_TRUE(ok(write_identity(world.disk, kDir, identity)));
}

void make_format1(ChunkWorld& world) {
  world.data_segments_max = 0;  // it has overlays instead
  world.make();
  ASSERT_TRUE(ok(world.write(kWhole, bytes_of(1, 300000))));
  ASSERT_TRUE(ok(world.write(kWhole, bytes_of(2, 5000), 1000)));
  ASSERT_TRUE(ok(world.write(kPending, bytes_of(3, 5000))));
  ASSERT_TRUE(ok(world.pend(world.update(kPending, UpdateType::replace, "pending"))));
  ASSERT_TRUE(ok(world.write(kRemoved, "removed")));
  ASSERT_TRUE(ok(world.remove(kRemoved)));
  ASSERT_TRUE(ok(world.run(world.store->set_owner_record("owner"))));
  world.close();
  downgrade(world);
}

void expect_everything(ChunkWorld& world) {
  std::string whole = bytes_of(1, 300000);
  whole.replace(1000, 5000, bytes_of(2, 5000));
  EXPECT_TRUE(world.get(kWhole) == whole);
  EXPECT_TRUE(world.get(kPending) == bytes_of(3, 5000));
  EXPECT_EQ(world.get(kPending, VersionKind::pending), "pending");
  EXPECT_EQ(world.get(kRemoved), "(not_found)");
  EXPECT_EQ(world.store->state(kTarget, kRemoved)->committed.version, 2u);
  EXPECT_EQ(world.store->owner_record(), "owner");
  EXPECT_EQ(world.store->channel_results(kTarget)->size(), 2u);
  EXPECT_EQ(world.store->rolled_back_chunks(), 0u);
  EXPECT_EQ(world.store->damaged_at_open(), 0u);
  EXPECT_EQ(read_identity(world.disk, kDir)->format, kDiskFormat);
  EXPECT_FALSE(*io::exists(world.disk, format1_path(kDir)));
}

TEST(Format1, TheUpgradeSurvivesACrashAtEveryOperation) {
  for (const bool power_lost : {false, true}) {
    for (uint64_t n = 0;; ++n) {
      SCOPED_TRACE(testing::Message() << "operation " << n << " power lost " << power_lost);
      ASSERT_LT(n, 300u);
      ChunkWorld world(n + 1);
      make_format1(world);
      world.disk.crash_at(world.disk.mutations() + n);
      const bool opened = world.open().ok();
      const bool crashed = world.disk.crashed();
      world.disk.crash_at(UINT64_MAX);
      ASSERT_EQ(opened, !crashed);
      if (crashed) {
        power_lost ? world.power_loss() : world.kill();
        ASSERT_TRUE(ok(world.open()));
      }
      expect_everything(world);
      ASSERT_TRUE(ok(world.write(kRemoved, "again")));
      world.kill();
      ASSERT_TRUE(ok(world.open()));
      EXPECT_EQ(world.get(kRemoved), "again");
      if (testing::Test::HasFailure() || !crashed) break;
    }
  }
}

TEST(Format1, AFailedOperationLeavesADiskThatIsUpgradedLater) {
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 300u);
    ChunkWorld world(n + 1);
    make_format1(world);
    world.disk.fail_at(world.disk.mutations() + n, n % 2 == 0 ? EIO : ENOSPC);
    const bool opened = world.open().ok();
    if (!opened) {
      ASSERT_TRUE(ok(world.open()));
    }
    expect_everything(world);
    if (testing::Test::HasFailure() || n > 60) break;
  }
}

TEST(Format1, DamagedOrMissingMetadataIsRefusedAndKept) {
  ChunkWorld world(1);
  make_format1(world);
  const std::string path = format1_path(kDir);
  const uint64_t size = world.disk.info(path)->size;
  for (uint64_t byte = 100; byte < size; byte += 512) {
    ASSERT_TRUE(ok(world.disk.flip_bit(path, byte * 8)));
  }
  EXPECT_EQ(code_of(world.open()), Errc::corrupt);
  EXPECT_EQ(read_identity(world.disk, kDir)->format, 1u);
  ASSERT_TRUE(ok(world.disk.remove(path)));
  EXPECT_EQ(code_of(world.open()), Errc::corrupt);
  EXPECT_FALSE(*io::exists(world.disk, path));
}

}  // namespace
}  // namespace ff::chunk

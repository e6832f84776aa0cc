// Backup and restore: equal content on every engine, also with concurrent writes; damaged files
// change nothing, and an interrupted restore is detected.
#include "platform/kv/backup.h"

#include <gtest/gtest.h>

#include "platform/io/files.h"
#include "platform/kv/tested_engines.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::kv {
namespace {

class BackupTest : public testing::TestWithParam<EngineKind> {
 protected:
  static constexpr size_t kEntries = 700;  // several pages and transactions

  Result<void> put(Engine& engine, std::string key, std::string value) {
    return run_task(loop_, engine.run(
                               [&](Txn& txn) -> Task<Result<void>> {
                                 txn.put(key, value);
                                 co_return Result<void>();
                               },
                               INT64_MAX));
  }
  void fill(Engine& engine) {
    for (size_t at = 0; at < kEntries; at += 100) {
      ASSERT_TRUE(run_task(loop_, engine.run(
                                      [&](Txn& txn) -> Task<Result<void>> {
                                        for (size_t i = at; i < at + 100; i++) {
                                          txn.put(fmt::format("key/{:05}", i),
                                                  std::string(i, static_cast<char>(i)));
                                        }
                                        co_return Result<void>();
                                      },
                                      INT64_MAX))
                      .ok());
    }
    ASSERT_TRUE(put(engine, std::string("\0\n", 2), "").ok());
  }
  std::vector<Entry> content(Engine& engine) {
    std::vector<Entry> all;
    EXPECT_TRUE(run_task(loop_, engine.view(
                                    [&](Txn& txn) -> Task<Result<void>> {
                                      Range range{{}, "\xff", 100'000};
                                      FF_CO_TRY(
                                          all, co_await txn.range(std::move(range), std::string()));
                                      co_return Result<void>();
                                    },
                                    INT64_MAX))
                    .ok());
    return all;
  }
  Result<BackupReport> backup(Engine& engine, const std::string& path) {
    return run_task(loop_, write_backup(engine, disk_, path, INT64_MAX));
  }
  Result<BackupReport> restore(Engine& engine, const std::string& path) {
    return run_task(loop_, restore_backup(engine, disk_, path, INT64_MAX));
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  sim::SimClock disk_clock_;
  sim::SimDisk disk_{1, disk_clock_};
};

INSTANTIATE_TEST_SUITE_P(Engines, BackupTest, testing::ValuesIn(engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(BackupTest, WhatIsRestoredIsWhatThereWas) {
  const auto from = GetParam().make(), to = GetParam().make();
  const auto engine = from->engine(loop_), other = to->engine(loop_);
  fill(*engine);
  const auto written = backup(*engine, "/backup");
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(written->entries, kEntries + 1);
  EXPECT_EQ(written->bytes, disk_.info("/backup")->size);
  disk_.power_loss();
  const auto restored = restore(*other, "/backup");
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(restored->entries, kEntries + 1);
  EXPECT_EQ(content(*other), content(*engine));
  // Neither over a store that has something, nor over a file.
  const auto again = restore(*other, "/backup");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Errc::exists);
  const auto over = backup(*engine, "/backup");
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, Errc::exists);
}

TEST_P(BackupTest, ARestoreThatWasCutShortBeginsAgain) {
  const auto from = GetParam().make(), to = GetParam().make();
  const auto engine = from->engine(loop_), other = to->engine(loop_);
  fill(*other);  // as far as the first restore got, and more
  ASSERT_TRUE(put(*other, kRestoring, "").ok());
  ASSERT_TRUE(put(*engine, "only", "this").ok());
  ASSERT_TRUE(backup(*engine, "/backup").ok());
  ASSERT_TRUE(restore(*other, "/backup").ok());
  EXPECT_EQ(content(*other), (std::vector<Entry>{{"only", "this"}}));
}

class BackupFileTest : public BackupTest {};
INSTANTIATE_TEST_SUITE_P(Memory, BackupFileTest, testing::Values(engine_kinds().front()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(BackupFileTest, EveryFlippedBitAndEveryCutIsNoticed) {
  const auto from = GetParam().make();
  const auto engine = from->engine(loop_);
  ASSERT_TRUE(put(*engine, "a", "1").ok());
  ASSERT_TRUE(put(*engine, "bb", "").ok());
  ASSERT_TRUE(backup(*engine, "/good").ok());
  const std::string good = io::read_file(disk_, "/good", kMiB).value();
  const auto refused = [&](const std::string& bytes) {
    (void)disk_.remove("/bad");
    auto file = disk_.open("/bad", {.access = io::AccessMode::write, .create = true}).value();
    EXPECT_TRUE(file->write_at(as_bytes(bytes), 0).ok());
    const auto to = GetParam().make();
    const auto other = to->engine(loop_);
    const auto result = restore(*other, "/bad");
    EXPECT_TRUE(content(*other).empty());
    return !result.ok() &&
           (result.error().code == Errc::corrupt || result.error().code == Errc::newer_format);
  };
  for (size_t bit = 0; bit < good.size() * 8; bit++) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_TRUE(refused(bad)) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); size++) {
    EXPECT_TRUE(refused(good.substr(0, size))) << size << " bytes";
  }
  // An entry taken out, or told twice.
  const size_t first = 8, second = first + 8 + 2 + 4, end = second + 8 + 2 + 4;
  EXPECT_TRUE(refused(good.substr(0, first) + good.substr(second)));
  EXPECT_TRUE(refused(good.substr(0, end) + good.substr(second)));
  EXPECT_TRUE(refused(good.substr(0, first) + good.substr(second, end - second) +
                      good.substr(first, second - first) + good.substr(end)));
}

// As 'ff admin backup' and 'restore' move a file system: to a larger engine, and back.
TEST_P(BackupFileTest, AStoreMovesFromEngineToEngine) {
  auto from = GetParam().make();
  auto engine = from->engine(loop_);
  fill(*engine);
  const std::vector<Entry> entries = content(*engine);
  for (const std::string to : {"sqlite", "etcd", "postgres", "sqlite"}) {
    const auto kinds = engine_kinds();
    auto next = std::ranges::find(kinds, to, &EngineKind::name)->make();
    auto next_engine = next->engine(loop_);
    (void)disk_.remove("/backup");
    ASSERT_TRUE(backup(*engine, "/backup").ok()) << to;
    const auto restored = restore(*next_engine, "/backup");
    ASSERT_TRUE(restored.ok()) << to << ": " << restored.error().message;
    EXPECT_EQ(content(*next_engine), entries) << to;
    engine = std::move(next_engine);
    from = std::move(next);
  }
}

TEST_P(BackupFileTest, AFullDiskOrACrashLeavesNoFileThatLooksWhole) {
  const auto from = GetParam().make();
  const auto engine = from->engine(loop_);
  fill(*engine);
  bool finished = false;
  for (uint64_t operation = 0; !finished; operation++) {
    sim::SimDisk disk(operation, disk_clock_);
    disk.crash_at(disk.mutations() + operation);
    finished = run_task(loop_, write_backup(*engine, disk, "/backup", INT64_MAX)).ok();
    disk.power_loss();
    disk.crash_at(UINT64_MAX);
    const auto there = io::exists(disk, "/backup");
    ASSERT_TRUE(there.ok());
    EXPECT_TRUE(*there || !finished);
    if (!*there) continue;
    const auto to = GetParam().make();
    const auto other = to->engine(loop_);
    EXPECT_TRUE(run_task(loop_, restore_backup(*other, disk, "/backup", INT64_MAX)).ok());
    EXPECT_EQ(content(*other), content(*engine));
  }
}

}  // namespace
}  // namespace ff::kv

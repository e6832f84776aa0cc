// SQLite on an io::Disk: its behaviour on SystemDisk and SimDisk, and the VFS calls that SQLite
// rarely makes. Power losses and faults are in disk_faults_test.cc.
#include "platform/db/disk_vfs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "platform/db/database.h"
#include "platform/db/watched_disk.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::db {
namespace {

using io::ok;

constexpr const char* kVfsMigrations[] = {
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, data BLOB) STRICT",
    "INSERT INTO runs (name) VALUES ('first')",
};

struct Place {
  virtual ~Place() = default;
  virtual io::Disk& disk() = 0;
  virtual std::string path() = 0;
};
struct OnSystem final : Place {
  io::Disk& disk() override { return system; }
  std::string path() override { return dir / "a.db"; }
  io::TempDir dir;
  io::SystemDisk system;
};
struct OnSim final : Place {
  io::Disk& disk() override { return sim; }
  std::string path() override { return "/a.db"; }
  sim::SimClock clock;
  sim::SimDisk sim{1, clock};
};
struct Maker {
  const char* name;
  std::function<std::unique_ptr<Place>()> make;
};

class OnDisk : public testing::TestWithParam<Maker> {
 protected:
  Result<Database> open(OnCorrupt on_corrupt = OnCorrupt::refuse,
                        Synchronous synchronous = Synchronous::full, size_t version = 2) {
    const DatabaseOptions options{.on_corrupt = on_corrupt,
                                  .disk = &place_->disk(),
                                  .rng = &rng_,
                                  .synchronous = synchronous};
    return Database::open(place_->path(), std::span(kVfsMigrations).first(version), clock_,
                          options);
  }
  static std::string text(Database& database, std::string_view sql) {
    auto statement = database.prepare(sql);
    EXPECT_TRUE(ok(statement));
    const auto row = statement->step();
    EXPECT_TRUE(row.ok() && *row);
    return std::string(statement->text(0));
  }
  uint64_t size_of(const std::string& suffix) {
    const auto info = place_->disk().info(place_->path() + suffix);
    return info ? info->size : 0;
  }

  sim::SimClock clock_;
  SeededRng rng_{1};
  std::unique_ptr<Place> place_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(All, OnDisk,
                         testing::Values(Maker{"system",
                                               [] { return std::make_unique<OnSystem>(); }},
                                         Maker{"sim", [] { return std::make_unique<OnSim>(); }}),
                         [](const auto& at) { return at.param.name; });

TEST_P(OnDisk, IsInWalModeAloneAndWithoutTemporaryFiles) {
  auto database = open();
  ASSERT_TRUE(ok(database));
  EXPECT_EQ(text(*database, "PRAGMA journal_mode"), "wal");
  EXPECT_EQ(text(*database, "PRAGMA locking_mode"), "exclusive");
  EXPECT_EQ(text(*database, "PRAGMA synchronous"), "2");
  EXPECT_EQ(text(*database, "SELECT name FROM runs"), "first");
  // Sorting more data than the cache holds, a statement that is rolled back half-way, VACUUM.
  ASSERT_TRUE(ok(database->run(
      "PRAGMA cache_size = 10; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
      "LIMIT 2000) INSERT INTO runs (name, data) SELECT i || 'x', randomblob(500) FROM n")));
  EXPECT_EQ(text(*database, "SELECT name FROM runs ORDER BY data || name LIMIT 1"), "first");
  EXPECT_EQ(io::code_of(database->run("UPDATE runs SET name = 'x'")), Errc::exists);
  EXPECT_TRUE(ok(database->run("VACUUM")));
  EXPECT_EQ(text(*database, "PRAGMA integrity_check"), "ok");
}

TEST_P(OnDisk, KeepsWhatWasCommittedAndLeavesOneFile) {
  for (const auto synchronous : {Synchronous::full, Synchronous::normal}) {
    place_ = GetParam().make();
    {
      auto database = open(OnCorrupt::refuse, synchronous);
      ASSERT_TRUE(ok(database));
      EXPECT_EQ(text(*database, "PRAGMA synchronous"),
                synchronous == Synchronous::full ? "2" : "1");
      ASSERT_TRUE(ok(database->run("INSERT INTO runs (name) VALUES ('second')")));
      EXPECT_TRUE(ok(database->flush()));
      auto transaction = database->begin();
      ASSERT_TRUE(ok(database->run("INSERT INTO runs (name) VALUES ('lost')")));
    }
    EXPECT_EQ(place_->disk().list(io::parent(place_->path()))->size(), 1u);
    auto again = open();
    ASSERT_TRUE(ok(again));
    EXPECT_EQ(text(*again, "SELECT group_concat(name) FROM runs"), "first,second");
  }
}

TEST_P(OnDisk, TwoAtOnceAreRefused) {
  {
    auto first = open();
    ASSERT_TRUE(ok(first));
    const auto second = open();
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::failed);
    EXPECT_EQ(second.error().message, place_->path() + ": in use by another process");
    EXPECT_FALSE(second.error().hint.empty());
    EXPECT_TRUE(ok(first->run("INSERT INTO runs (name) VALUES ('x')")));
  }
  EXPECT_TRUE(ok(open()));
}

TEST_P(OnDisk, NewerSchemaIsRefused) {
  { ASSERT_TRUE(ok(open())); }
  const auto refused = open(OnCorrupt::refuse, Synchronous::full, 1);
  EXPECT_EQ(io::code_of(refused), Errc::newer_format);
}

TEST_P(OnDisk, CorruptFileIsRefusedOrMovedAside) {
  ASSERT_TRUE(ok(io::put(place_->disk(), place_->path(), std::string(10'000, 'x'))));
  EXPECT_EQ(io::code_of(open()), Errc::corrupt);
  std::vector<std::string> aside;
  for (int i = 0; i < 2; ++i) {
    {
      auto fresh = open(OnCorrupt::recreate);
      ASSERT_TRUE(ok(fresh));
      aside.push_back(fresh->moved_aside());
      EXPECT_EQ(text(*fresh, "SELECT name FROM runs"), "first");
    }
    ASSERT_TRUE(ok(io::put(place_->disk(), place_->path(), "again")));
  }
  EXPECT_EQ(io::get(place_->disk(), aside[0]), std::string(10'000, 'x'));
  EXPECT_EQ(io::get(place_->disk(), aside[1]), "again");
}

TEST_P(OnDisk, CutInsideItsLastPageIsCorrupt) {
  { ASSERT_TRUE(ok(open())); }
  auto file = place_->disk().open(place_->path(), {.access = io::AccessMode::read_write});
  ASSERT_TRUE(ok(file));
  ASSERT_TRUE(ok((*file)->truncate((*file)->info()->size - 1000)));
  file->reset();
  EXPECT_EQ(io::code_of(open()), Errc::corrupt);
}

TEST_P(OnDisk, LogIsBounded) {
  auto database = open(OnCorrupt::refuse, Synchronous::normal);
  ASSERT_TRUE(ok(database));
  auto insert = database->prepare("INSERT INTO runs (name, data) VALUES (?, randomblob(20000))");
  uint64_t largest = 0;
  for (int i = 0; i < 800; ++i) {
    insert->bind(fmt::format("run {}", i));
    ASSERT_TRUE(ok(insert->run()));
    largest = std::max(largest, size_of("-wal"));
  }
  EXPECT_GT(size_of(""), 12u << 20);
  EXPECT_GT(largest, 3u << 20);
  EXPECT_LT(largest, (4u << 20) + (200u << 10));  // 1,000 pages with their heads and one commit
}

// Direct calls of the VFS methods.

class Calls : public testing::Test {
 protected:
  // An open file of the VFS.
  struct Opened {
    explicit Opened(const DiskVfs& of)
        : vfs(sqlite3_vfs_find(of.name())), room(static_cast<size_t>(vfs->szOsFile)) {}
    ~Opened() {
      if (file().pMethods != nullptr) file().pMethods->xClose(&file());
    }
    sqlite3_file& file() { return *reinterpret_cast<sqlite3_file*>(room.data()); }
    int open(const char* path, int flags) { return vfs->xOpen(vfs, path, &file(), flags, nullptr); }
    sqlite3_vfs* vfs;
    std::vector<std::max_align_t> room;
  };
  static constexpr int kMake = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;

  sim::SimClock clock_;
  sim::SimDisk disk_{1, clock_};
  SeededRng rng_{1};
};

TEST_F(Calls, ShortReadsEndInZeros) {
  DiskVfs vfs(disk_, clock_, rng_);
  ASSERT_TRUE(ok(io::put(disk_, "/a.db", "12345")));
  Opened opened(vfs);
  ASSERT_EQ(opened.open("/a.db", kMake | SQLITE_OPEN_MAIN_DB), SQLITE_OK);
  const auto* methods = opened.file().pMethods;
  std::array<char, 8> into;
  into.fill('x');
  EXPECT_EQ(methods->xRead(&opened.file(), into.data(), 5, 0), SQLITE_OK);
  EXPECT_EQ(std::string_view(into.data(), 6), "12345x");
  into.fill('x');
  EXPECT_EQ(methods->xRead(&opened.file(), into.data(), 8, 3), SQLITE_IOERR_SHORT_READ);
  EXPECT_EQ(std::string_view(into.data(), 8), std::string_view("45\0\0\0\0\0\0", 8));
  into.fill('x');
  EXPECT_EQ(methods->xRead(&opened.file(), into.data(), 8, 100), SQLITE_IOERR_SHORT_READ);
  EXPECT_EQ(std::string_view(into.data(), 8), std::string_view("\0\0\0\0\0\0\0\0", 8));
  EXPECT_FALSE(vfs.take_error().has_value());
}

TEST_F(Calls, DeletedForGoodWhenAskedTo) {
  int back = 0;
  for (const int sync_dir : {1, 0}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} sync {}", seed, sync_dir));
      sim::SimDisk disk(seed, clock_);
      DiskVfs vfs(disk, clock_, rng_);
      ASSERT_TRUE(ok(disk.make_dir("/d", 0777)));
      ASSERT_TRUE(ok(io::put(disk, "/d/j", "journal", true)));
      ASSERT_TRUE(ok(disk.sync_dir("/")) && ok(disk.sync_dir("/d")));
      sqlite3_vfs* calls = sqlite3_vfs_find(vfs.name());
      ASSERT_EQ(calls->xDelete(calls, "/d/j", sync_dir), SQLITE_OK);
      disk.power_loss();
      const bool there = *io::exists(disk, "/d/j");
      if (sync_dir == 1) {
        EXPECT_FALSE(there);
      }
      back += there ? 1 : 0;
    }
  }
  EXPECT_GT(back, 0);  // those that were not asked to
  DiskVfs vfs(disk_, clock_, rng_);
  sqlite3_vfs* calls = sqlite3_vfs_find(vfs.name());
  EXPECT_EQ(calls->xDelete(calls, "/nothing", 1), SQLITE_IOERR_DELETE_NOENT);
}

TEST_F(Calls, SyncedFilesKeepTheirNames) {
  for (const int kind : {SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_WAL, SQLITE_OPEN_MAIN_JOURNAL}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(fmt::format("seed {} kind {}", seed, kind));
      sim::SimDisk disk(seed, clock_);
      {
        DiskVfs vfs(disk, clock_, rng_);
        Opened opened(vfs);
        ASSERT_EQ(opened.open("/f", kMake | kind), SQLITE_OK);
        disk.kill();  // before it was synced: the name is there, but not for good
      }
      DiskVfs vfs(disk, clock_, rng_);
      Opened opened(vfs);
      ASSERT_EQ(opened.open("/f", kMake | kind), SQLITE_OK);
      const auto* methods = opened.file().pMethods;
      ASSERT_EQ(methods->xWrite(&opened.file(), "abc", 3, 0), SQLITE_OK);
      ASSERT_EQ(methods->xSync(&opened.file(), SQLITE_SYNC_NORMAL), SQLITE_OK);
      disk.power_loss();
      EXPECT_EQ(io::get(disk, "/f"), "abc");
    }
  }
}

// The last frame of a transaction writes all its frames to the disk at once; earlier reads see
// them, too.
TEST_F(Calls, FramesOfALogAreWrittenTogether) {
  DiskVfs vfs(disk_, clock_, rng_);
  Opened opened(vfs);
  ASSERT_EQ(opened.open("/a.db-wal", kMake | SQLITE_OPEN_WAL), SQLITE_OK);
  auto& file = opened.file();
  std::string expected;
  const auto write = [&](const std::string& bytes, size_t at) {
    EXPECT_EQ(file.pMethods->xWrite(&file, bytes.data(), static_cast<int>(bytes.size()),
                                    static_cast<sqlite3_int64>(at)),
              SQLITE_OK);
    expected.resize(std::max(expected.size(), at + bytes.size()));
    expected.replace(at, bytes.size(), bytes);
  };
  const auto frame = [&](char page, bool last) {
    std::string header(24, page);
    header.replace(4, 4, last ? std::string("\0\0\0\1", 4) : std::string(4, '\0'));
    write(header, expected.size());
    write(std::string(512, page), expected.size());
  };
  const auto written = [&] { return io::get(disk_, "/a.db-wal") == expected; };
  const auto read = [&] {
    std::string into(expected.size(), ' ');
    EXPECT_EQ(file.pMethods->xRead(&file, into.data(), static_cast<int>(into.size()), 0),
              SQLITE_OK);
    return into == expected;
  };
  write(std::string(32, 'H'), 0);
  EXPECT_TRUE(written());
  const uint64_t before = disk_.mutations();
  frame('a', false);
  frame('b', false);
  EXPECT_FALSE(written());
  frame('c', true);
  EXPECT_TRUE(written());
  EXPECT_EQ(disk_.mutations(), before + 1);

  frame('d', false);
  EXPECT_TRUE(read());
  EXPECT_TRUE(written());
  frame('e', false);
  write(std::string(24, 'E'), 32);  // an older header, in place: after what came before it
  EXPECT_TRUE(written());
  frame('f', false);
  sqlite3_int64 size = 0;
  EXPECT_EQ(file.pMethods->xFileSize(&file, &size), SQLITE_OK);
  EXPECT_EQ(static_cast<size_t>(size), expected.size());
  frame('g', false);
  EXPECT_EQ(file.pMethods->xSync(&file, SQLITE_SYNC_NORMAL), SQLITE_OK);
  EXPECT_TRUE(written());

  // The write of the last page of the transaction reports a full disk at the latest.
  disk_.fail_at(disk_.mutations(), ENOSPC);
  const std::string header =
      std::string(4, 'h') + std::string("\0\0\0\1", 4) + std::string(16, 'h');
  const auto at = static_cast<sqlite3_int64>(expected.size());
  EXPECT_EQ(file.pMethods->xWrite(&file, header.data(), 24, at), SQLITE_OK);
  EXPECT_EQ(file.pMethods->xWrite(&file, header.data(), 16, at + 24), SQLITE_FULL);
}

TEST_F(Calls, FailuresAreTranslatedAndKept) {
  DiskVfs vfs(disk_, clock_, rng_);
  Opened opened(vfs);
  ASSERT_EQ(opened.open("/a.db", kMake | SQLITE_OPEN_MAIN_DB), SQLITE_OK);
  auto& file = opened.file();
  const auto write = [&] { return file.pMethods->xWrite(&file, "abc", 3, 0); };
  disk_.fail_at(disk_.mutations(), ENOSPC);
  EXPECT_EQ(write(), SQLITE_FULL);
  const auto full = vfs.take_error();
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->code, Errc::disk_full);
  EXPECT_FALSE(vfs.take_error().has_value());
  disk_.fail_at(disk_.mutations(), EIO);
  EXPECT_EQ(write(), SQLITE_IOERR_WRITE);
  EXPECT_EQ(write(), SQLITE_OK);
  disk_.fail_at(disk_.mutations(), EIO);
  EXPECT_EQ(file.pMethods->xTruncate(&file, 0), SQLITE_IOERR_TRUNCATE);

  // After a failed sync only reads succeed.
  disk_.fail_at(disk_.mutations(), EIO);
  EXPECT_EQ(file.pMethods->xSync(&file, SQLITE_SYNC_FULL), SQLITE_IOERR_FSYNC);
  EXPECT_EQ(file.pMethods->xSync(&file, SQLITE_SYNC_FULL), SQLITE_IOERR_FSYNC);
  EXPECT_EQ(write(), SQLITE_IOERR_WRITE);
  EXPECT_EQ(file.pMethods->xTruncate(&file, 0), SQLITE_IOERR_TRUNCATE);
  ASSERT_TRUE(vfs.take_error().has_value());
  char byte = 0;
  EXPECT_EQ(file.pMethods->xRead(&file, &byte, 1, 0), SQLITE_OK);
}

// Another process renames a corrupt file just before this one locks it.
TEST_F(Calls, AFileThatWasMovedAwayIsNotOpened) {
  struct MovingDisk final : WatchedDisk {
    explicit MovingDisk(io::Disk& below) : WatchedDisk(below) {}
    Result<std::unique_ptr<io::File>> open(const std::string& path, io::OpenOptions how) override {
      FF_TRY(auto file, WatchedDisk::open(path, how));
      FF_TRY(rename(path, path + ".corrupt"));
      if (path == "/b.db") FF_TRY(WatchedDisk::open(path, how));  // and begins a new one
      return file;
    }
  };
  MovingDisk moving(disk_);
  DiskVfs vfs(moving, clock_, rng_);
  for (const char* path : {"/a.db", "/b.db"}) {
    Opened opened(vfs);
    EXPECT_EQ(opened.open(path, kMake | SQLITE_OPEN_MAIN_DB), SQLITE_BUSY);
  }
}

TEST_F(Calls, TemporaryFilesAreRefused) {
  DiskVfs vfs(disk_, clock_, rng_);
  Opened opened(vfs);
  EXPECT_EQ(opened.open(nullptr, kMake | SQLITE_OPEN_TEMP_DB), SQLITE_CANTOPEN);
  EXPECT_EQ(opened.open("/t", kMake | SQLITE_OPEN_TRANSIENT_DB), SQLITE_CANTOPEN);
  EXPECT_EQ(disk_.list("/")->size(), 0u);
}

TEST_F(Calls, EmptyFilesDoNotCount) {
  DiskVfs vfs(disk_, clock_, rng_);
  ASSERT_TRUE(ok(io::put(disk_, "/empty", "")) && ok(io::put(disk_, "/full", "x")));
  sqlite3_vfs* calls = sqlite3_vfs_find(vfs.name());
  const auto found = [&](const char* path) {
    int result = 2;
    EXPECT_EQ(calls->xAccess(calls, path, SQLITE_ACCESS_EXISTS, &result), SQLITE_OK);
    return result;
  };
  EXPECT_EQ(found("/empty"), 0);
  EXPECT_EQ(found("/full"), 1);
  EXPECT_EQ(found("/nothing"), 0);
}

TEST_F(Calls, TimeAndDiceAreInjected) {
  auto database = Database::open("/a.db", kVfsMigrations, clock_, {.disk = &disk_, .rng = &rng_});
  ASSERT_TRUE(ok(database));
  auto now = database->prepare("SELECT strftime('%s', 'now'), random()");
  ASSERT_TRUE(*now->step());
  EXPECT_EQ(now->integer(0), sim::SimClock::kStartNs / kSecond);
  const int64_t dice = now->integer(1);

  sim::SimDisk other_disk(1, clock_);
  SeededRng same(1);
  clock_.advance(5 * kSecond);
  auto other = Database::open("/a.db", kVfsMigrations, clock_, {.disk = &other_disk, .rng = &same});
  auto later = other->prepare("SELECT strftime('%s', 'now'), random()");
  ASSERT_TRUE(*later->step());
  EXPECT_EQ(later->integer(0), sim::SimClock::kStartNs / kSecond + 5);
  EXPECT_EQ(later->integer(1), dice);

  DiskVfs vfs(disk_, clock_, rng_);
  sqlite3_vfs* calls = sqlite3_vfs_find(vfs.name());
  const int64_t before = clock_.steady_ns();
  EXPECT_EQ(calls->xSleep(calls, 250), 250);
  EXPECT_EQ(clock_.steady_ns() - before, 250 * kMicrosecond);
}

}  // namespace
}  // namespace ff::db

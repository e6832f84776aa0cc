// Database: statements and transactions, migrations, newer schemas, corrupt files, several
// processes, a kill in the middle of a transaction, a full disk.
#include "platform/db/database.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/io/temp_dir.h"

namespace ff::db {
namespace {

namespace fs = std::filesystem;

const char* const kDatabaseMigrations[] = {
    "CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
    "INSERT INTO runs (name) VALUES ('first')",
    "ALTER TABLE runs ADD COLUMN steps INTEGER NOT NULL DEFAULT 7",
    "CREATE TABLE steps (run INTEGER NOT NULL REFERENCES runs(id), data BLOB) STRICT",
};
using Migrations = std::span<const char* const>;
constexpr size_t kNewest = std::size(kDatabaseMigrations);

Result<Database> open_at(const std::string& path, size_t version, DatabaseOptions options = {}) {
  static SystemClock clock;
  return Database::open(path, Migrations(kDatabaseMigrations).first(version), clock, options);
}

Database must_open(const std::string& path, DatabaseOptions options = {}) {
  auto opened = open_at(path, kNewest, options);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return std::move(opened).value();
}

int64_t number(Database& database, std::string_view sql) {
  auto statement = database.prepare(sql);
  EXPECT_TRUE(statement.ok()) << statement.error().message;
  const auto row = statement->step();
  EXPECT_TRUE(row.ok() && *row);
  return statement->integer(0);
}

// All files of the directory with their content.
std::map<std::string, std::string> snapshot(const std::string& dir) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    std::ifstream file(entry.path(), std::ios::binary);
    files[entry.path().filename()] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

void write_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Runs `act` in a child process, which exits 0 when it returned true.
template <class Act>
pid_t in_child(Act act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act() ? 0 : 1);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(Statement, BindsAndReadsEveryType) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  auto select = database.prepare("SELECT ?, ?, ?, ?, ?, ?, ?");
  ASSERT_TRUE(select.ok());
  const std::string text("a\0b", 3);
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{255}};
  select->bind(INT64_MIN, 0.5, text, ByteView(bytes), nullptr, "", std::optional<int>());
  const auto row = select->step();
  ASSERT_TRUE(row.ok() && *row);
  EXPECT_EQ(select->integer(0), INT64_MIN);
  EXPECT_EQ(select->real(1), 0.5);
  EXPECT_EQ(select->text(2), text);
  EXPECT_TRUE(std::ranges::equal(select->blob(3), bytes));
  EXPECT_TRUE(select->is_null(4));
  EXPECT_FALSE(select->is_null(5));  // empty text is no NULL
  EXPECT_EQ(select->text(5), "");
  EXPECT_TRUE(select->is_null(6));
  EXPECT_EQ(select->integer(6), 0);
  EXPECT_TRUE(select->text(6).empty());
  EXPECT_TRUE(select->blob(6).empty());
  EXPECT_FALSE(*select->step());

  select->bind(true, 1, std::string_view("x"), ByteView(), std::optional<int64_t>(4),
               std::string_view(), 3u);
  ASSERT_TRUE(*select->step());
  EXPECT_EQ(select->integer(0), 1);
  EXPECT_FALSE(select->is_null(3));  // nor are empty bytes
  EXPECT_EQ(select->integer(4), 4);
  EXPECT_FALSE(select->is_null(5));
}

TEST(Statement, RunsAgainAndCountsRows) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  auto insert = database.prepare("INSERT INTO runs (name) VALUES (?)");
  ASSERT_TRUE(insert.ok());
  for (int i = 0; i < 5; ++i) {
    insert->bind(fmt::format("run {}", i));
    ASSERT_TRUE(insert->run().ok());
    EXPECT_EQ(database.changes(), 1);
    EXPECT_EQ(database.last_insert_id(), i + 2);
  }
  ASSERT_TRUE(database.run("UPDATE runs SET steps = 9 WHERE id > 3").ok());
  EXPECT_EQ(database.changes(), 3);
}

TEST(Statement, ErrorsHaveCodesAndNameTheFile) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  const auto bad = database.prepare("SELECT nothing");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Errc::failed);
  EXPECT_NE(bad.error().message.find(dir / "a.db"), std::string::npos);

  auto insert = database.prepare("INSERT INTO runs (name) VALUES (?)");
  insert->bind("first");
  const auto twice = insert->run();
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, Errc::exists);
  insert->bind("second");  // the failure leaves the statement usable
  EXPECT_TRUE(insert->run().ok());
  insert->bind(nullptr);
  EXPECT_EQ(insert->run().error().code, Errc::failed);

  // Foreign keys are on.
  EXPECT_FALSE(database.run("INSERT INTO steps (run) VALUES (999)").ok());
}

TEST(Statement, EndedStatementsDoNotPinTheLog) {
  const io::TempDir dir;
  Database reader = must_open(dir / "a.db");
  Database writer = must_open(dir / "a.db");
  auto select = reader.prepare("SELECT count(*) FROM runs");
  ASSERT_TRUE(select->run().ok());
  ASSERT_TRUE(writer.run("INSERT INTO runs (name) VALUES ('x')").ok());
  EXPECT_EQ(number(writer, "PRAGMA wal_checkpoint(TRUNCATE)"), 0);  // 0: not busy
  EXPECT_EQ(fs::file_size(dir / "a.db-wal"), 0u);
}

TEST(StatementDeathTest, WrongIndexesAreBugs) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  auto select = database.prepare("SELECT ?");
  EXPECT_DEATH(select->bind(1, 2), "check failed");
  EXPECT_DEATH(select->bind(UINT64_MAX), "check failed");
  EXPECT_DEATH((void)select->integer(0), "check failed");  // no row yet
  select->bind(1);
  ASSERT_TRUE(*select->step());
  EXPECT_DEATH((void)select->integer(1), "check failed");
}

TEST(Transaction, CommitsOrLeavesNoTrace) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  {
    auto transaction = database.begin();
    ASSERT_TRUE(transaction.ok());
    ASSERT_TRUE(database.run("INSERT INTO runs (name) VALUES ('lost')").ok());
  }
  EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 1);
  {
    auto transaction = database.begin();
    ASSERT_TRUE(database.run("INSERT INTO runs (name) VALUES ('kept')").ok());
    ASSERT_TRUE(transaction->commit().ok());
  }
  EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 2);
}

TEST(Transaction, MovesWithItsDatabase) {
  const io::TempDir dir;
  Database first = must_open(dir / "a.db");
  auto transaction = first.begin();
  ASSERT_TRUE(transaction.ok());
  auto insert = first.prepare("INSERT INTO runs (name) VALUES ('moved')");
  Database second = std::move(first);
  ASSERT_TRUE(insert->run().ok());
  ASSERT_TRUE(transaction->commit().ok());
  EXPECT_EQ(number(second, "SELECT count(*) FROM runs"), 2);
}

TEST(Database, IsDurableAndInWalMode) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  EXPECT_EQ(number(database, "PRAGMA synchronous"), 2);
  EXPECT_EQ(number(database, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'wal'"),
            1);
  EXPECT_EQ(number(database, "PRAGMA foreign_keys"), 1);
  EXPECT_EQ(database.path(), dir / "a.db");
  EXPECT_TRUE(database.moved_aside().empty());
}

TEST(Migrations, BringEveryVersionForward) {
  for (size_t from = 0; from <= kNewest; ++from) {
    SCOPED_TRACE(from);
    const io::TempDir dir;
    { ASSERT_TRUE(open_at(dir / "a.db", from).ok()); }
    Database database = must_open(dir / "a.db");
    EXPECT_EQ(number(database, "PRAGMA user_version"), static_cast<int64_t>(kNewest));
    EXPECT_EQ(number(database, "SELECT steps FROM runs WHERE name = 'first'"), 7);
    EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 1);  // each ran once
    EXPECT_EQ(number(database, "SELECT count(*) FROM steps"), 0);
  }
}

TEST(Migrations, FailureInTheMiddleLeavesTheOldVersion) {
  const io::TempDir dir;
  const char* const broken[] = {
      kDatabaseMigrations[0],
      "ALTER TABLE runs ADD COLUMN steps INTEGER NOT NULL DEFAULT 7;"
      "INSERT INTO runs (name) VALUES ('half'); INSERT INTO nowhere VALUES (1)",
      "CREATE TABLE never (x)",
  };
  SystemClock clock;
  const auto failed = Database::open(dir / "a.db", broken, clock, {});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::failed);
  EXPECT_NE(failed.error().message.find("from version 1 to 2"), std::string::npos)
      << failed.error().message;
  {
    auto old = open_at(dir / "a.db", 1);  // the program before still opens it
    ASSERT_TRUE(old.ok()) << old.error().message;
    EXPECT_EQ(number(*old, "SELECT count(*) FROM runs"), 1);
    EXPECT_EQ(number(*old, "SELECT count(*) FROM pragma_table_info('runs') WHERE name = 'steps'"),
              0);
  }
  Database fixed = must_open(dir / "a.db");
  EXPECT_EQ(number(fixed, "SELECT steps FROM runs"), 7);
}

TEST(Migrations, NewerSchemaIsRefusedAndNotTouched) {
  const io::TempDir dir;
  { ASSERT_TRUE(open_at(dir / "a.db", 3).ok()); }
  const auto before = snapshot(dir.path());
  for (const OnCorrupt on_corrupt : {OnCorrupt::refuse, OnCorrupt::recreate}) {
    const auto refused = open_at(dir / "a.db", 2, {.on_corrupt = on_corrupt});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::newer_format);
    for (const std::string& word :
         {dir / "a.db", std::string("version 3"), std::string("up to 2")}) {
      EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
    }
    EXPECT_FALSE(refused.error().hint.empty());
    EXPECT_EQ(snapshot(dir.path()).at("a.db"), before.at("a.db"));
  }
}

// Each test damages a database file of several pages that has a WAL.
class Corrupt : public testing::Test {
 protected:
  std::string path() const { return dir_ / "a.db"; }

  // Fills the file, checkpoints the WAL and returns the content of the file.
  std::string make() {
    {
      Database database = must_open(path());
      auto insert = database.prepare("INSERT INTO steps (run, data) VALUES (1, randomblob(3000))");
      auto transaction = database.begin();
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(insert->run().ok());
      EXPECT_TRUE(transaction->commit().ok());
    }
    return snapshot(dir_.path()).at("a.db");
  }

  // Both values of OnCorrupt on a damaged file.
  void expect_refused_then_moved(const std::string& damaged) {
    write_file(path(), damaged);
    const auto refused = open_at(path(), kNewest);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::corrupt);
    EXPECT_NE(refused.error().message.find(path()), std::string::npos);
    EXPECT_NE(refused.error().hint.find("--accept-data-loss"), std::string::npos);
    EXPECT_EQ(snapshot(dir_.path()).at("a.db"), damaged);

    {
      Database fresh = must_open(path(), {.on_corrupt = OnCorrupt::recreate});
      EXPECT_TRUE(fresh.moved_aside().starts_with(path() + ".corrupt-2"));
      EXPECT_EQ(number(fresh, "SELECT count(*) FROM steps"), 0);
      EXPECT_EQ(number(fresh, "SELECT count(*) FROM runs"), 1);
      EXPECT_EQ(snapshot(dir_.path()).at(fs::path(fresh.moved_aside()).filename()), damaged);
    }
    Database again = must_open(path());  // and all is well from then on
    EXPECT_TRUE(again.moved_aside().empty());
  }

  io::TempDir dir_;
};

TEST_F(Corrupt, NotADatabase) { expect_refused_then_moved(std::string(10'000, 'x')); }

TEST_F(Corrupt, ShortGarbage) { expect_refused_then_moved("hello"); }

TEST_F(Corrupt, TruncatedFile) {
  const std::string good = make();
  expect_refused_then_moved(good.substr(0, good.size() / 2));
}

TEST_F(Corrupt, TruncatedInsideAPage) {
  const std::string good = make();
  expect_refused_then_moved(good.substr(0, good.size() - 1000));
}

TEST_F(Corrupt, EveryPageOverwritten) {
  const std::string good = make();
  constexpr size_t kPage = 4096;
  SeededRng rng(1);
  // Page 2 on: the roots and leaves of the tables. Content pages of a long blob carry no structure,
  // but these rows are shorter than a page.
  for (size_t page = 1; page < good.size() / kPage; page += 7) {
    SCOPED_TRACE(page);
    std::string damaged = good;
    for (size_t i = 0; i < kPage; ++i) damaged[page * kPage + i] = static_cast<char>(rng.next());
    expect_refused_then_moved(damaged);
  }
}

TEST_F(Corrupt, LogGoesAsideWithItsFile) {
  make();
  // A child process is killed before it checkpoints the WAL.
  const int status = wait_for(in_child([&] {
    Database database = must_open(path());
    if (!database.run("INSERT INTO runs (name) VALUES ('in the log')").ok()) return false;
    ::kill(::getpid(), SIGKILL);
    return false;
  }));
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::string log = snapshot(dir_.path()).at("a.db-wal");
  ASSERT_FALSE(log.empty());
  std::string damaged = snapshot(dir_.path()).at("a.db");
  std::fill(damaged.end() - 3 * 4096, damaged.end(), 'x');
  write_file(path(), damaged);

  EXPECT_EQ(open_at(path(), kNewest).error().code, Errc::corrupt);
  auto files = snapshot(dir_.path());
  EXPECT_EQ(files.at("a.db"), damaged);  // the log is not merged into it
  EXPECT_EQ(files.at("a.db-wal"), log);

  Database fresh = must_open(path(), {.on_corrupt = OnCorrupt::recreate});
  const std::string aside = fs::path(fresh.moved_aside()).filename();
  files = snapshot(dir_.path());
  EXPECT_EQ(files.at(aside), damaged);
  EXPECT_EQ(files.at(aside + "-wal"), log);
}

// A stopped clock, so that two corrupt files are renamed in the same second.
class StandingClock final : public Clock {
 public:
  int64_t wall_ns() override { return 1795224780 * kSecond; }
  int64_t steady_ns() override { return 0; }
  void sleep_ns(int64_t) override {}
};

TEST_F(Corrupt, NothingIsOverwritten) {
  StandingClock clock;
  const DatabaseOptions options{.on_corrupt = OnCorrupt::recreate};
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    write_file(path(), fmt::format("garbage {}", i));
    auto fresh = Database::open(path(), kDatabaseMigrations, clock, options);
    ASSERT_TRUE(fresh.ok());
    names.push_back(fresh->moved_aside());
  }
  const std::string first = path() + ".corrupt-20261121T013300Z";
  EXPECT_EQ(names, (std::vector<std::string>{first, first + ".2", first + ".3"}));
  const auto files = snapshot(dir_.path());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(files.at(fs::path(names[static_cast<size_t>(i)]).filename()),
              fmt::format("garbage {}", i));
  }
}

TEST_F(Corrupt, OneOfManyProcessesMovesIt) {
  write_file(path(), std::string(5000, 'x'));
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(in_child([&, i] {
      Database database = must_open(path(), {.on_corrupt = OnCorrupt::recreate});
      auto insert = database.prepare("INSERT INTO runs (name) VALUES (?)");
      insert->bind(fmt::format("child {}", i));
      return insert->run().ok();
    }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  Database database = must_open(path());
  EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 9);  // nobody lost a row
  const auto files = snapshot(dir_.path());
  EXPECT_EQ(
      std::ranges::count_if(
          files, [](const auto& file) { return file.first.find("corrupt") != file.first.npos; }),
      1);
}

TEST(Database, FoundCorruptWhileRunning) {
  const io::TempDir dir;
  Database database = must_open(dir / "a.db");
  ASSERT_TRUE(database.run("INSERT INTO steps (run, data) VALUES (1, randomblob(200000))").ok());
  ASSERT_TRUE(database.run("PRAGMA wal_checkpoint(TRUNCATE)").ok());
  const auto size = fs::file_size(dir / "a.db");
  write_file(dir / "a.db",
             snapshot(dir.path()).at("a.db").substr(0, 4096) + std::string(size - 4096, '\xa5'));
  ASSERT_TRUE(database.run("PRAGMA cache_size = 0; PRAGMA shrink_memory").ok());
  const auto result = database.run("SELECT sum(length(data)) FROM steps");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Errc::corrupt);
}

TEST(Database, ManyProcessesOpenANewFileAtOnce) {
  const io::TempDir dir;
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    children.push_back(in_child([&] { return open_at(dir / "a.db", kNewest).ok(); }));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  Database database = must_open(dir / "a.db");
  EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 1);
}

TEST(Database, SecondWriterWaitsForTheFirst) {
  const io::TempDir dir;
  Database first = must_open(dir / "a.db");
  auto transaction = first.begin();
  ASSERT_TRUE(transaction.ok());
  std::atomic<bool> started = false;
  std::atomic<bool> written = false;
  std::thread other([&] {
    Database second = must_open(dir / "a.db", {.busy_timeout_ms = 60'000});
    started = true;
    EXPECT_TRUE(second.run("INSERT INTO runs (name) VALUES ('second')").ok());
    written = true;
  });
  while (!started) std::this_thread::yield();
  ASSERT_TRUE(first.run("INSERT INTO runs (name) VALUES ('first writer')").ok());
  EXPECT_FALSE(written);
  ASSERT_TRUE(transaction->commit().ok());
  other.join();
  EXPECT_TRUE(written);
  EXPECT_EQ(number(first, "SELECT count(*) FROM runs"), 3);
}

TEST(Database, SecondWriterGivesUpAfterTheTimeout) {
  const io::TempDir dir;
  Database first = must_open(dir / "a.db");
  Database second = must_open(dir / "a.db", {.busy_timeout_ms = 20});
  const auto transaction = first.begin();
  ASSERT_TRUE(transaction.ok());
  const auto refused = second.begin();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::failed);
  EXPECT_NE(refused.error().message.find("another process"), std::string::npos);
  EXPECT_FALSE(refused.error().hint.empty());
  // Meanwhile readers see the last commit.
  EXPECT_EQ(number(second, "SELECT count(*) FROM runs"), 1);
}

TEST(Database, AReadingTransactionSeesOneState) {
  const io::TempDir dir;
  Database first = must_open(dir / "a.db");
  auto second = first.open_another();
  ASSERT_TRUE(second.ok());
  auto reading = second->begin_read();
  ASSERT_TRUE(reading.ok());
  EXPECT_EQ(number(*second, "SELECT count(*) FROM runs"), 1);
  EXPECT_TRUE(first.run("INSERT INTO runs (name) VALUES ('second')").ok());
  EXPECT_EQ(number(*second, "SELECT count(*) FROM runs"), 1);
  EXPECT_TRUE(reading->commit().ok());
  EXPECT_EQ(number(*second, "SELECT count(*) FROM runs"), 2);
}

TEST(Database, KilledInATransactionLeavesTheOldState) {
  const io::TempDir dir;
  { must_open(dir / "a.db"); }
  const int status = wait_for(in_child([&] {
    Database database = must_open(dir / "a.db");
    if (!database.run("INSERT INTO runs (name) VALUES ('committed')").ok()) return false;
    auto transaction = database.begin();
    // Larger than the page cache, so that pages of the unfinished transaction reach the WAL.
    if (!database
             .run("PRAGMA cache_size = 10;"
                  "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500) "
                  "INSERT INTO steps SELECT 1, randomblob(3000) FROM n")
             .ok()) {
      return false;
    }
    ::kill(::getpid(), SIGKILL);
    return false;
  }));
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_GT(fs::file_size(dir / "a.db-wal"), 100'000u);
  Database database = must_open(dir / "a.db");
  EXPECT_TRUE(database.moved_aside().empty());
  EXPECT_EQ(number(database, "SELECT count(*) FROM runs"), 2);
  EXPECT_EQ(number(database, "SELECT count(*) FROM steps"), 0);
}

TEST(Database, UnusablePathsSayWhy) {
  const io::TempDir dir;
  const auto nowhere = open_at(dir / "missing/a.db", kNewest);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, Errc::not_found);
  EXPECT_NE(nowhere.error().message.find(dir / "missing"), std::string::npos);

  fs::create_directory(dir / "folder.db");
  EXPECT_FALSE(open_at(dir / "folder.db", kNewest).ok());
}

TEST(Database, ReadOnlyFileIsRefused) {
  const io::TempDir dir;
  { must_open(dir / "a.db"); }
  // As user nobody, because root may write anywhere.
  const int status = wait_for(in_child([&] {
    ::chmod(dir.path().c_str(), 0555);
    ::chmod((dir / "a.db").c_str(), 0444);
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
    const auto opened = open_at(dir / "a.db", kNewest);
    return !opened.ok() && opened.error().code == Errc::refused &&
           opened.error().message.find(dir / "a.db") != std::string::npos;
  }));
  ::chmod(dir.path().c_str(), 0755);  // so that it can be removed
  EXPECT_EQ(status, 0);
}

// A tmpfs of one MiB; needs root.
class SmallDisk {
 public:
  SmallDisk() { mounted_ = ::mount("tmpfs", dir_.path().c_str(), "tmpfs", 0, "size=1m") == 0; }
  ~SmallDisk() {
    if (mounted_) ::umount2(dir_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const io::TempDir& dir() const { return dir_; }

 private:
  io::TempDir dir_;
  bool mounted_ = false;
};

TEST(Database, FullDiskFailsTheTransactionAndKeepsTheRest) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const std::string path = disk.dir() / "a.db";
  Database database = must_open(path);
  auto insert = database.prepare("INSERT INTO steps (run, data) VALUES (1, randomblob(20000))");
  int64_t kept = 0;
  std::optional<Error> full;
  for (int i = 0; i < 200 && !full; ++i) {
    auto transaction = database.begin();
    ASSERT_TRUE(transaction.ok());
    Result<void> done = insert->run();
    if (done) done = transaction->commit();
    if (done) {
      ++kept;
    } else {
      full = std::move(done).error();
    }
  }
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full->code, Errc::disk_full) << full->message;
  EXPECT_FALSE(full->hint.empty());
  EXPECT_GT(kept, 0);
  EXPECT_EQ(number(database, "SELECT count(*) FROM steps"), kept);
}

TEST(Database, FullDiskAtOpenIsNoCorruption) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  // Leaves no free space, one page, two pages, ...: so every step of opening finds the disk full.
  int failures = 0;
  for (int free_pages = 0; free_pages < 40; ++free_pages) {
    SCOPED_TRACE(free_pages);
    for (const auto& entry : fs::directory_iterator(disk.dir().path())) fs::remove(entry.path());
    const int fd = ::open((disk.dir() / "ballast").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(::posix_fallocate(fd, 0, (1 << 20) - free_pages * 4096), 0);
    ::close(fd);
    const auto opened = open_at(disk.dir() / "a.db", kNewest, {.on_corrupt = OnCorrupt::recreate});
    if (opened.ok()) {
      EXPECT_TRUE(opened->moved_aside().empty());
      continue;
    }
    ++failures;
    EXPECT_EQ(opened.error().code, Errc::disk_full) << opened.error().message;
  }
  EXPECT_GT(failures, 0);
  EXPECT_LT(failures, 40);
}

}  // namespace
}  // namespace ff::db

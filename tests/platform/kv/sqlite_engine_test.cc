// Tests specific to the SQLite store: files, threads, deadlines and group commit.
#include "platform/kv/sqlite_engine.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "platform/base/gate.h"
#include "platform/base/system_loop.h"
#include "platform/io/temp_dir.h"

namespace ff::kv {
namespace {

class SqliteEngineTest : public testing::Test {
 protected:
  std::unique_ptr<SqliteStore> open() {
    return SqliteStore::open(dir_ / "kv.db", clock_, {}).value();
  }
  Result<void> put(SqliteStore& store, const std::string& key, const std::string& value) {
    SqliteEngine engine(store, loop_);
    return run_task(loop_, engine.run(
                               [&](Txn& txn) -> Task<Result<void>> {
                                 txn.put(key, value);
                                 co_return Result<void>();
                               },
                               INT64_MAX));
  }
  std::optional<std::string> get(SqliteStore& store, const std::string& key) {
    SqliteEngine engine(store, loop_);
    std::optional<std::string> value;
    EXPECT_TRUE(run_task(loop_, engine.view(
                                    [&](Txn& txn) -> Task<Result<void>> {
                                      FF_CO_TRY(value, co_await txn.get(key));
                                      co_return Result<void>();
                                    },
                                    INT64_MAX))
                    .ok());
    return value;
  }

  // The result of the check of the whole file, once it has ended.
  Result<void> checked(const SqliteStore& store) {
    const int64_t deadline_ns = clock_.steady_ns() + 60 * kSecond;
    for (;;) {
      if (const auto result = store.check_result()) return *result;
      if (clock_.steady_ns() > deadline_ns) return fail(Errc::deadline, "the check does not end");
      clock_.sleep_ns(kMillisecond);
    }
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  io::TempDir dir_;
};

// Returns when somebody has set `promise`; its loop goes on meanwhile.
Task<void> until(Loop& loop, std::promise<void>& promise) {
  const auto future = promise.get_future();
  while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    YieldWait yield(loop);
    (void)co_await yield;
  }
}

// Keeps the writer busy, from `in` until `on`.
Task<void> hold_writer(SqliteEngine& of, std::promise<void>& in, std::promise<void>& on) {
  auto running = of.run(
      [&](Txn&) -> Task<Result<void>> {
        in.set_value();
        on.get_future().wait();
        co_return Result<void>();
      },
      INT64_MAX);
  EXPECT_TRUE((co_await std::move(running)).ok());
}

TEST_F(SqliteEngineTest, WhatWasCommittedIsThereAfterOpeningAgain) {
  {
    const auto store = open();
    ASSERT_TRUE(put(*store, "a", "1").ok());
  }
  const auto store = open();
  EXPECT_EQ(get(*store, "a"), "1");
}

// A child commits one key after the other and says so; it is killed in the middle.
TEST_F(SqliteEngineTest, WhatWasAnsweredSurvivesAKill) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::close(ends[0]);
    const auto store = open();
    for (int i = 0;; i++) {
      if (!put(*store, std::to_string(i), "x").ok()) ::_exit(1);
      if (::write(ends[1], &i, sizeof i) != sizeof i) ::_exit(1);
    }
  }
  ::close(ends[1]);
  int last = -1;
  while (last < 50) ASSERT_EQ(::read(ends[0], &last, sizeof last), ssize_t{sizeof last});
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  for (int next; ::read(ends[0], &next, sizeof next) == ssize_t{sizeof next};) last = next;
  ::close(ends[0]);
  const auto store = open();
  for (int i = 0; i <= last; i++) EXPECT_EQ(get(*store, std::to_string(i)), "x") << i;
}

TEST_F(SqliteEngineTest, ACorruptFileIsRefusedOrPutAside) {
  { const auto store = open(); }
  std::ofstream(dir_ / "kv.db", std::ios::trunc) << "this is no database, and never was one";
  const auto refused = SqliteStore::open(dir_ / "kv.db", clock_, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::corrupt);
  EXPECT_NE(refused.error().message.find("kv.db"), std::string::npos);
  const auto store =
      SqliteStore::open(dir_ / "kv.db", clock_, {.on_corrupt = db::OnCorrupt::recreate});
  ASSERT_TRUE(store.ok());
  EXPECT_FALSE((*store)->moved_aside().empty());
  EXPECT_EQ(get(**store, "a"), std::nullopt);
}

// A file whose structure is damaged opens at once, without being read; its check finds the damage,
// and then the store takes no more changes, and says so to the operator.
TEST_F(SqliteEngineTest, DamageIsFoundAfterOpening) {
  {
    const auto store = open();
    for (int i = 0; i < 60; i++) {
      ASSERT_TRUE(put(*store, fmt::format("key/{:02}", i), std::string(1500, 'x')).ok());
    }
    EXPECT_TRUE(checked(*store).ok());
  }
  {
    std::fstream file(dir_ / "kv.db", std::ios::in | std::ios::out | std::ios::binary);
    constexpr std::streamoff kPage = 4096;
    file.seekp(0, std::ios::end);
    file.seekp(file.tellp() / kPage / 2 * kPage);
    file << std::string(kPage, '\x55');
  }
  SqliteStore::Options options;
  options.corrupt_hint = "call the operator";
  const auto store = SqliteStore::open(dir_ / "kv.db", clock_, options).value();
  Metrics metrics;
  const SqliteEngine reporting(*store, loop_, &metrics);
  const auto found = checked(*store);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::corrupt) << found.error().message;
  EXPECT_NE(found.error().message.find("kv.db"), std::string::npos);
  EXPECT_NE(metrics.text().find("ff_kv_damaged 1"), std::string::npos) << metrics.text();
  const auto refused = put(*store, "key/00", "new");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::corrupt);
  EXPECT_EQ(refused.error().hint, "call the operator");
  EXPECT_EQ(get(*store, "key/00"), std::string(1500, 'x'));  // what is whole can be read
  // Whoever accepts the loss gets an empty store at once.
  options.on_corrupt = db::OnCorrupt::recreate;
  const auto fresh = SqliteStore::open(dir_ / "kv.db", clock_, options).value();
  EXPECT_FALSE(fresh->moved_aside().empty());
  EXPECT_TRUE(checked(*fresh).ok());
  EXPECT_TRUE(put(*fresh, "key/00", "new").ok());
}

// Files of before values had seals, also when whoever brought one forward was killed at it.
TEST_F(SqliteEngineTest, AnOlderFileIsBroughtForward) {
  const auto raw = [&](const std::string& sql) {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open((dir_ / "kv.db").c_str(), &file), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(file, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sql;
    sqlite3_close(file);
  };
  const std::string table = "(key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID; ";
  const std::string many =
      " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000) "
      "SELECT CAST(i AS BLOB), CAST('value ' || i AS BLOB) FROM n; ";
  raw("CREATE TABLE kv " + table + "INSERT INTO kv" + many + "PRAGMA user_version = 1");
  const auto check = [&] {
    const auto store = open();
    for (int i = 1; i <= 25'000; i += 499) {
      EXPECT_EQ(get(*store, std::to_string(i)), fmt::format("value {}", i));
    }
    EXPECT_EQ(get(*store, "0"), std::nullopt);
    EXPECT_TRUE(put(*store, "0", "").ok());
    SqliteEngine engine(*store, loop_);
    EXPECT_TRUE(run_task(loop_, engine.run(
                                    [](Txn& txn) -> Task<Result<void>> {
                                      txn.erase("0");
                                      co_return Result<void>();
                                    },
                                    INT64_MAX))
                    .ok());
  };
  {
    const auto refused = SqliteStore::open(dir_ / "kv.db", clock_, {.owned = false});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("schema has version 1"), std::string::npos);
  }
  check();
  raw("CREATE TABLE unsealed " + table + "INSERT INTO unsealed" + many +
      "DELETE FROM unsealed WHERE key <= x'35'; DELETE FROM kv WHERE key > x'35'");
  check();
  check();
  // A version that has flipped back does not begin this anew.
  raw("PRAGMA user_version = 2");
  EXPECT_FALSE(SqliteStore::open(dir_ / "kv.db", clock_, {}).ok());
}

// A commit writes each page that has changed into the log, once: that of the key, and that of the
// store's position.
TEST_F(SqliteEngineTest, TransactionsOfOneTurnShareACommit) {
  const auto store = open();
  SqliteEngine engine(*store, loop_);
  const auto put = [&](std::string value) -> Task<void> {
    auto running = engine.run(
        [&](Txn& txn) -> Task<Result<void>> {
          txn.put("key", value);
          co_return Result<void>();
        },
        INT64_MAX);
    EXPECT_TRUE((co_await std::move(running)).ok());
  };
  run_task(loop_, put("0"));
  const auto before = std::filesystem::file_size(dir_ / "kv.db-wal");
  Gate gate(loop_);
  for (int i = 1; i <= 20; i++) gate.spawn(put(std::to_string(i)));
  run_task(loop_, gate.wait_empty());
  constexpr size_t kFrame = 24 + 4096;  // SQLite's file format: 4.2, WAL frame
  EXPECT_EQ(std::filesystem::file_size(dir_ / "kv.db-wal"), before + 2 * kFrame);
  EXPECT_EQ(get(*store, "key"), "20");
}

// While one function holds the writer up, others pile up: the late ones are answered so.
TEST_F(SqliteEngineTest, ATransactionThatComesTooLateIsNotRun) {
  const auto store = open();
  SqliteEngine engine(*store, loop_);
  std::promise<void> entered, go_on;
  bool ran = false;
  Result<void> late;
  Gate gate(loop_);
  gate.spawn(hold_writer(engine, entered, go_on));
  gate.spawn([](Loop& loop, SqliteEngine& of, std::promise<void>& in, std::promise<void>& on,
                bool& was_run, Result<void>& out) -> Task<void> {
    co_await until(loop, in);
    auto running = of.run(
        [&](Txn&) -> Task<Result<void>> {
          was_run = true;
          co_return Result<void>();
        },
        loop.now_ns());
    on.set_value();
    out = co_await std::move(running);
  }(loop_, engine, entered, go_on, ran, late));
  run_task(loop_, gate.wait_empty());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::deadline);
  EXPECT_FALSE(ran);
}

// A task that is destroyed while its function waits takes it out of the queue.
TEST_F(SqliteEngineTest, ADestroyedTaskTakesItsFunctionAlong) {
  const auto store = open();
  SqliteEngine engine(*store, loop_);
  std::promise<void> entered, go_on;
  Gate first(loop_);
  first.spawn(hold_writer(engine, entered, go_on));
  {
    Gate second(loop_);
    second.spawn([](SqliteEngine& of) -> Task<void> {
      auto running = of.run(
          [](Txn& txn) -> Task<Result<void>> {
            txn.put("a", "1");
            co_return Result<void>();
          },
          INT64_MAX);
      (void)co_await std::move(running);
    }(engine));
    run_task(loop_, until(loop_, entered));
  }
  go_on.set_value();
  run_task(loop_, first.wait_empty());
  EXPECT_EQ(get(*store, "a"), std::nullopt);
}

}  // namespace
}  // namespace ff::kv

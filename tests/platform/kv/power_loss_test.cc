// Asynchronous commits of an SQLite store: which of them a power loss may lose, and in which thread
// they run.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <iostream>
#include <string>
#include <thread>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/base/wait.h"
#include "platform/io/temp_dir.h"
#include "platform/kv/recorded_vfs.h"
#include "platform/kv/sqlite_engine.h"

namespace ff::kv {
namespace {

constexpr const char* kLast = "m/last";

std::string key_of(int number) { return fmt::format("k/{:06}", number); }

// Transactions with numbers: each makes a key of its own and puts its number in three places that
// lie far apart. What is found later is the state after some number, or it is torn.
class LostPowerTest : public testing::Test {
 protected:
  LostPowerTest() {
    std::cout << "seed " << seed_ << "\n";
    store_ = SqliteStore::open(dir_ / "kv.db", clock_, {}).value();
    engine_ = std::make_unique<SqliteEngine>(*store_, loop_);
  }
  ~LostPowerTest() override {
    engine_.reset();
    store_.reset();
  }

  TxnFunction number(int n) {
    return [n](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto last, co_await txn.get(kLast));
      const int before = last ? std::stoi(*last) : 0;
      if (before + 1 != n) co_return fail(Errc::failed, "{} after {}", n, before);
      const std::string text = std::to_string(n);
      txn.put("a/first", text + std::string(3000, 'a'));
      txn.put(kLast, text);
      txn.put("z/third", text + std::string(3000, 'z'));
      txn.put(key_of(n), text);
      co_return Result<void>();
    };
  }
  // The one after the last, whichever that is.
  TxnFunction next(int& mine) {
    return [this, &mine](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto before, co_await txn.get(kLast));
      mine = before ? std::stoi(*before) + 1 : 1;
      const TxnFunction numbering = number(mine);
      co_return co_await numbering(txn);
    };
  }
  static TxnFunction read_last(int& seen) {
    return [&seen](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(const auto now, co_await txn.get(kLast));
      seen = now ? std::stoi(*now) : 0;
      co_return Result<void>();
    };
  }
  Task<void> one(int n, bool durable) {
    auto running = durable ? engine_->run(number(n), INT64_MAX)
                           : engine_->run_async_commit(number(n), INT64_MAX);
    const auto done = co_await std::move(running);
    EXPECT_TRUE(done.ok()) << done.error().message;
    if (durable) confirmed_ = std::max(confirmed_, n);
  }
  void soon(int n) { run_task(loop_, one(n, false)); }
  void sync() {
    const int before = issued_;
    auto syncing = engine_->sync(INT64_MAX);
    ASSERT_TRUE(run_task(loop_, std::move(syncing)).ok());
    confirmed_ = std::max(confirmed_, before);
  }
  // Some, together in one turn of the loop.
  void some(size_t count, bool durable) {
    Gate gate(loop_);
    for (size_t i = 0; i < count; i++) gate.spawn(one(++issued_, durable));
    run_task(loop_, gate.wait_empty());
  }

  // The number of the state in a store, which must be whole. -1: it is not.
  int state_of(SqliteStore& store) {
    const Range all{"k/", "k0", 100'000};
    SqliteEngine engine(store, loop_);
    int number = -1;
    auto looking = engine.view(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(const auto last, co_await txn.get(kLast));
          FF_CO_TRY(const auto first, co_await txn.get("a/first"));
          FF_CO_TRY(const auto third, co_await txn.get("z/third"));
          FF_CO_TRY(const auto keys, co_await txn.range(all, ""));
          number = last ? std::stoi(*last) : 0;
          const std::string text = std::to_string(number);
          const bool same = number == 0 ? !first && !third
                                        : first == text + std::string(3000, 'a') &&
                                              third == text + std::string(3000, 'z');
          bool whole = same && keys.size() == static_cast<size_t>(number);
          for (size_t i = 0; whole && i < keys.size(); i++) {
            whole = keys[i].key == key_of(static_cast<int>(i) + 1);
          }
          if (!whole) number = -1;
          co_return Result<void>();
        },
        INT64_MAX);
    const auto done = run_task(loop_, std::move(looking));
    EXPECT_TRUE(done.ok()) << done.error().message;
    return number;
  }
  // The number that is found when power is lost now.
  int left(bool all = false) {
    const io::TempDir after;
    vfs_.leave(dir_.path(), after.path(), rng_, all);
    const auto store = SqliteStore::open(after / "kv.db", clock_, {});
    EXPECT_TRUE(store.ok()) << store.error().message;
    if (!store) return -1;
    const int64_t deadline_ns = clock_.steady_ns() + 60 * kSecond;
    while (!(*store)->check_result() && clock_.steady_ns() < deadline_ns) {
      clock_.sleep_ns(kMillisecond);
    }
    EXPECT_TRUE((*store)->check_result().value().ok());
    return state_of(**store);
  }
  void expect_sound() {
    const int found = left();
    EXPECT_GE(found, confirmed_);
    EXPECT_LE(found, issued_);
  }
  size_t log_bytes() const { return vfs_.bytes_of(dir_ / "kv.db-wal"); }

  const uint64_t seed_ = system_seed();
  SeededRng rng_{seed_};
  RecordedVfs vfs_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  io::TempDir dir_;
  std::string dir_path_ = dir_.path();  // where the store lies
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<SqliteEngine> engine_;
  int issued_ = 0;
  int confirmed_ = 0;
};

TEST_F(LostPowerTest, WhatWasConfirmedIsLeftAndOfTheRestTheFirst) {
  for (int step = 0; step < 200 && !HasFailure(); step++) {
    switch (rng_.below(8)) {
      case 0: sync(); break;
      case 1: some(1, true); break;
      case 2: some(1 + rng_.below(5), rng_.below(2) == 0); break;
      default: some(1, false);
    }
    if (step % 4 == 0) expect_sound();
  }
  EXPECT_EQ(left(true), issued_);
}

// Lone ones run in the loop, batches and durable ones in the writer: one order, whoever runs them.
TEST_F(LostPowerTest, TasksOfAllKindsAreOneOrder) {
  Gate gate(loop_);
  int ended = 0;
  int last = 0;
  const auto task = [&](uint64_t seed) -> Task<void> {
    SeededRng rng(seed);
    for (int i = 0; i < 40; i++) {
      int mine = 0;
      const bool durable = rng.below(3) == 0;
      auto running = durable ? engine_->run(next(mine), INT64_MAX)
                             : engine_->run_async_commit(next(mine), INT64_MAX);
      EXPECT_TRUE((co_await std::move(running)).ok());
      issued_ = last = std::max(last, mine);
      if (durable) confirmed_ = std::max(confirmed_, mine);
      int seen = 0;
      auto looking = engine_->view_inline(read_last(seen), INT64_MAX);
      EXPECT_TRUE((co_await std::move(looking)).ok());
      EXPECT_GE(seen, mine);
      for (uint64_t turns = rng.below(3); turns > 0; turns--) {
        YieldWait yield(loop_);
        (void)co_await yield;
      }
    }
    ended++;
  };
  for (uint64_t i = 0; i < 4; i++) gate.spawn(task(seed_ + i));
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(ended, 4);
  EXPECT_EQ(state_of(*store_), 160);
  const int found = left();
  EXPECT_GE(found, confirmed_);
  sync();
  EXPECT_EQ(left(), 160);
}

TEST_F(LostPowerTest, WhatNobodyWaitsForIsDurableAfterAWhile) {
  some(1, true);
  for (int round = 0; round < 3; round++) {
    const size_t before = vfs_.syncs();
    some(1, false);
    const int64_t end_ns = clock_.steady_ns() + 60 * kSecond;
    while (vfs_.syncs() == before && clock_.steady_ns() < end_ns) {
      clock_.sleep_ns(5 * kMillisecond);
    }
    EXPECT_EQ(left(), issued_);
  }
}

TEST_F(LostPowerTest, ACloseMakesAllDurable) {
  some(1, false);
  some(3, false);
  engine_.reset();
  store_.reset();
  EXPECT_EQ(left(), issued_);
  store_ = SqliteStore::open(dir_ / "kv.db", clock_, {}).value();
  engine_ = std::make_unique<SqliteEngine>(*store_, loop_);
}

// What a client was answered, it can ask about later, whatever has become of the store since.
TEST_F(LostPowerTest, MarksTellWhatIsLost) {
  struct Answered {
    int number;
    CommitPosition mark;
    bool lost;
  };
  std::vector<Answered> answered;
  const io::TempDir dirs[4];
  for (const io::TempDir& next : dirs) {
    const int first = issued_ + 1;
    const auto steps = static_cast<int>(1 + rng_.below(12));
    for (int i = 0; i < steps; i++) {
      if (rng_.below(4) == 0) sync();
      some(1, false);
      answered.push_back({issued_, engine_->last_commit(), false});
    }
    EXPECT_NE(answered.back().mark.generation, 0U);
    sync();
    EXPECT_EQ(engine_->durable_position(engine_->last_commit().generation),
              engine_->last_commit().position);
    EXPECT_EQ(engine_->durable_position(1), std::nullopt);
    for (uint64_t more = rng_.below(5); more > 0; more--) {
      some(1, false);
      answered.push_back({issued_, engine_->last_commit(), false});
    }
    vfs_.leave(dir_path_, next.path(), rng_, rng_.below(4) == 0);
    engine_.reset();
    store_.reset();
    store_ = SqliteStore::open(next / "kv.db", clock_, {}).value();
    engine_ = std::make_unique<SqliteEngine>(*store_, loop_);
    const int left = state_of(*store_);
    ASSERT_GE(left, first);
    for (Answered& one : answered) {
      one.lost = one.lost || one.number > left;
      const auto durable = engine_->durable_position(one.mark.generation);
      ASSERT_TRUE(durable);
      EXPECT_EQ(one.mark.position > *durable, one.lost) << one.number << " of " << left;
    }
    issued_ = confirmed_ = left;
    dir_path_ = next.path();
  }
}

// The log is copied into the file beside, and begins anew: what is confirmed lies in either.
TEST_F(LostPowerTest, TheLogStaysShortAndLosesNothing) {
  const std::string large(900'000, 'x');
  for (int i = 0; i < 120 && !HasFailure(); i++) {
    auto running = engine_->run_async_commit(
        [&](Txn& txn) -> Task<Result<void>> {
          txn.put("large", large + std::to_string(i));
          co_return Result<void>();
        },
        INT64_MAX);
    ASSERT_TRUE(run_task(loop_, std::move(running)).ok());
    some(1, i % 5 == 0);
    if (i % 10 == 9) expect_sound();
  }
  EXPECT_LT(log_bytes(), 64 * kMiB);
}

TEST_F(LostPowerTest, AfterASyncThatFailedNothingIsWritten) {
  some(1, true);
  some(1, false);
  vfs_.fail_syncs(true);
  const auto synced = run_task(loop_, engine_->sync(INT64_MAX));
  ASSERT_FALSE(synced.ok());
  EXPECT_NE(synced.error().message.find("kv.db: disk I/O error"), std::string::npos)
      << synced.error().message;
  EXPECT_FALSE(synced.error().hint.empty());
  vfs_.fail_syncs(false);  // the kernel tells once
  EXPECT_FALSE(run_task(loop_, engine_->run_async_commit(number(3), INT64_MAX)).ok());
  EXPECT_FALSE(run_task(loop_, engine_->run(number(3), INT64_MAX)).ok());
  EXPECT_FALSE(run_task(loop_, engine_->sync(INT64_MAX)).ok());
  EXPECT_EQ(state_of(*store_), 2);  // reads go on
}

// Where a function runs, and whether its caller's loop waits for it.
TEST_F(LostPowerTest, ALoneOneRunsInTheLoopUnlessTheWriterIsBusy) {
  std::thread::id in;
  const TxnFunction where = [&](Txn& txn) -> Task<Result<void>> {
    in = std::this_thread::get_id();
    txn.put("where", "");
    co_return Result<void>();
  };
  const auto here = std::this_thread::get_id();
  const int64_t end_ns = clock_.steady_ns() + 60 * kSecond;
  do {  // it may be about to sync what was written before
    ASSERT_TRUE(run_task(loop_, engine_->run_async_commit(where, INT64_MAX)).ok());
  } while (in != here && clock_.steady_ns() < end_ns);
  EXPECT_EQ(in, here);
  ASSERT_TRUE(run_task(loop_, engine_->run(where, INT64_MAX)).ok());
  EXPECT_NE(in, here);
  std::promise<void> entered, go_on;
  bool looked = false;
  Gate gate(loop_);
  gate.spawn([](SqliteEngine& of, std::promise<void>& busy, std::promise<void>& on) -> Task<void> {
    auto running = of.run(
        [&](Txn&) -> Task<Result<void>> {
          busy.set_value();
          on.get_future().wait();
          co_return Result<void>();
        },
        INT64_MAX);
    EXPECT_TRUE((co_await std::move(running)).ok());
  }(*engine_, entered, go_on));
  run_task(loop_, [](Loop& loop, std::promise<void>& busy) -> Task<void> {
    const auto future = busy.get_future();
    while (future.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      YieldWait yield(loop);
      (void)co_await yield;
    }
  }(loop_, entered));
  gate.spawn([](SqliteEngine& of, const TxnFunction& function) -> Task<void> {
    auto running = of.run_async_commit(function, INT64_MAX);
    EXPECT_TRUE((co_await std::move(running)).ok());
  }(*engine_, where));
  // Reads do not wait for the writer.
  auto looking = engine_->view_inline(
      [&](Txn& txn) -> Task<Result<void>> {
        in = std::this_thread::get_id();
        FF_CO_TRY(const auto found, co_await txn.get("where"));
        looked = found.has_value();
        co_return Result<void>();
      },
      INT64_MAX);
  EXPECT_TRUE(run_task(loop_, std::move(looking)).ok());
  EXPECT_TRUE(looked);
  EXPECT_EQ(in, here);
  go_on.set_value();
  run_task(loop_, gate.wait_empty());
  EXPECT_NE(in, here);
}

TEST_F(LostPowerTest, SeveralLoopsShareOneOrder) {
  constexpr int kThreads = 3, kTimes = 60;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([this, i] {
      SystemLoop loop(clock_);
      SqliteEngine engine(*store_, loop);
      SeededRng rng(seed_ + static_cast<uint64_t>(i));
      for (int n = 0; n < kTimes; n++) {
        int mine = 0;
        auto running = rng.below(4) == 0 ? engine.run(next(mine), INT64_MAX)
                                         : engine.run_async_commit(next(mine), INT64_MAX);
        ASSERT_TRUE(run_task(loop, std::move(running)).ok());
        int seen = 0;
        auto looking = engine.view_inline(read_last(seen), INT64_MAX);
        ASSERT_TRUE(run_task(loop, std::move(looking)).ok());
        EXPECT_GE(seen, mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(state_of(*store_), kThreads * kTimes);
  issued_ = kThreads * kTimes;
  expect_sound();
  sync();
  EXPECT_EQ(left(), issued_);
}

}  // namespace
}  // namespace ff::kv

// The contract of kv/engine.h for transactions, views and ranges, tested with every engine.
#include "platform/kv/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/wait.h"
#include "platform/kv/tested_engines.h"

namespace ff::kv {
namespace {

using Value = std::optional<std::string>;

class EngineTest : public testing::TestWithParam<EngineKind> {
 protected:
  Result<void> run(TxnFunction function) {
    return run_task(loop_, engine_->run(std::move(function), INT64_MAX));
  }
  Result<void> view(TxnFunction function) {
    return run_task(loop_, engine_->view(std::move(function), INT64_MAX));
  }
  void put(const std::string& key, const std::string& value) {
    ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                  txn.put(key, value);
                  co_return Result<void>();
                }).ok());
  }
  Value get(const std::string& key) {
    Value value;
    EXPECT_TRUE(view([&](Txn& txn) -> Task<Result<void>> {
                  FF_CO_TRY(value, co_await txn.get(key));
                  co_return Result<void>();
                }).ok());
    return value;
  }
  std::vector<Entry> range(Range wanted) {
    std::vector<Entry> entries;
    EXPECT_TRUE(view([&](Txn& txn) -> Task<Result<void>> {
                  FF_CO_TRY(entries, co_await txn.range(wanted, "guard"));
                  co_return Result<void>();
                }).ok());
    return entries;
  }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  std::unique_ptr<TestedStore> store_ = GetParam().make();
  std::unique_ptr<Engine> engine_ = store_->engine(loop_);
};

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, testing::ValuesIn(engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(EngineTest, WhatIsPutIsThereUntilItIsErased) {
  const std::string binary("\0\xff\n", 3);
  EXPECT_EQ(get("a"), Value());
  put("a", "1");
  put(binary, binary);
  put("empty", "");
  EXPECT_EQ(get("a"), Value("1"));
  EXPECT_EQ(get(binary), Value(binary));
  EXPECT_EQ(get("empty"), Value(""));
  put("a", "2");
  EXPECT_EQ(get("a"), Value("2"));
  ASSERT_TRUE(run([](Txn& txn) -> Task<Result<void>> {
                txn.erase("a");
                txn.erase("never there");
                co_return Result<void>();
              }).ok());
  EXPECT_EQ(get("a"), Value());
}

TEST_P(EngineTest, ATransactionSeesItsOwnWrites) {
  put("guard", "");
  for (const char* const key : {"b", "d", "f"}) {
    ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                  txn.put(key, "old");
                  txn.put("guard", key);
                  co_return Result<void>();
                }).ok());
  }
  const Range all{"a", "g", 10}, two{"a", "g", 2}, one{"b", "g", 1};
  std::vector<Entry> seen, first, behind_erased;
  Value own, erased, snapshot;
  ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                txn.put("a", "new");
                txn.put("d", "new");
                txn.erase("b");
                txn.put("guard", "");
                FF_CO_TRY(own, co_await txn.get("d"));
                FF_CO_TRY(snapshot, co_await txn.snapshot_get("d"));
                FF_CO_TRY(erased, co_await txn.get("b"));
                FF_CO_TRY(seen, co_await txn.range(all, "guard"));
                FF_CO_TRY(first, co_await txn.range(two, "guard"));
                txn.erase("d");
                FF_CO_TRY(behind_erased, co_await txn.range(one, "guard"));
                txn.put("d", "new");
                co_return Result<void>();
              }).ok());
  EXPECT_EQ(own, Value("new"));
  EXPECT_EQ(snapshot, Value("new"));
  EXPECT_EQ(erased, Value());
  EXPECT_EQ(seen, (std::vector<Entry>{{"a", "new"}, {"d", "new"}, {"f", "old"}}));
  EXPECT_EQ(first, (std::vector<Entry>{{"a", "new"}, {"d", "new"}}));
  EXPECT_EQ(behind_erased, (std::vector<Entry>{{"f", "old"}}));
  EXPECT_EQ(range({"a", "g", 10}), seen);
}

// More than one request to etcd may ask for.
TEST_P(EngineTest, ManyKeysAreReadTogether) {
  std::vector<std::string> keys;
  std::vector<Value> values;
  ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                for (int i = 0; i < 50; i++) txn.put(fmt::format("key/{}", 5 * i), "v");
                co_return Result<void>();
              }).ok());
  for (int i = 250; i-- > 0;) keys.push_back(fmt::format("key/{}", i));
  ASSERT_TRUE(view([&](Txn& txn) -> Task<Result<void>> {
                FF_CO_TRY(values, co_await txn.get_all(keys));
                co_return Result<void>();
              }).ok());
  ASSERT_EQ(values.size(), keys.size());
  for (int i = 0; i < 250; i++) {
    EXPECT_EQ(values[static_cast<size_t>(249 - i)], i % 5 == 0 ? Value("v") : Value()) << i;
  }
  ASSERT_TRUE(
      run([&](Txn& txn) -> Task<Result<void>> {
        txn.put("key/1", "own");
        txn.erase("key/5");
        const std::vector<std::string> some = {"key/0", "key/1", "key/5", "key/10", "key/2"};
        FF_CO_TRY(values, co_await txn.get_all(some));
        co_return Result<void>();
      }).ok());
  EXPECT_EQ(values, (std::vector<Value>{"v", "own", {}, "v", {}}));
  const auto over = run([&](Txn& txn) -> Task<Result<void>> {
    FF_CO_TRY(values, co_await txn.get_all(keys));
    co_return Result<void>();
  });
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, Errc::failed) << over.error().message;
}

// Prefetched keys and ranges give what the transaction would read without: own writes cover them.
TEST_P(EngineTest, WhatIsPrefetchedIsReadAsWithout) {
  for (const char* const key : {"a", "d/1", "d/2", "d/3", "e/1"}) {
    ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                  txn.put(key, "old");
                  for (const char* const guard : {"guard/d", "guard/e", "guard/f"})
                    txn.put(guard, "");
                  co_return Result<void>();
                }).ok());
  }
  const Range d{"d/", "d0", 2}, e{"e/", "e0", 1}, f{"f/", "f0", 1}, more{"d/", "d0", 10};
  Value a, none, own;
  std::vector<Entry> two, after_erasure, all, one, empty;
  ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                txn.put("own", "new");
                std::vector<std::string> keys = {"none", "a", "a", "own"};
                FF_CO_TRY(co_await txn.prefetch(std::move(keys)));
                std::vector<GuardedRange> ranges;
                ranges.push_back({d, "guard/d"});
                ranges.push_back({e, "guard/e"});
                ranges.push_back({f, "guard/f"});
                FF_CO_TRY(co_await txn.prefetch_ranges(std::move(ranges)));
                FF_CO_TRY(a, co_await txn.get("a"));
                FF_CO_TRY(none, co_await txn.get("none"));
                FF_CO_TRY(own, co_await txn.get("own"));
                FF_CO_TRY(two, co_await txn.range(d, "guard/d"));
                FF_CO_TRY(one, co_await txn.range(e, "guard/e"));
                FF_CO_TRY(empty, co_await txn.range(f, "guard/f"));
                txn.erase("d/1");
                txn.put("a", "new");
                txn.put("guard/d", "");
                FF_CO_TRY(a, co_await txn.get("a"));
                FF_CO_TRY(after_erasure, co_await txn.range(d, "guard/d"));
                FF_CO_TRY(all, co_await txn.range(more, "guard/d"));
                co_return Result<void>();
              }).ok());
  EXPECT_EQ(a, Value("new"));
  EXPECT_EQ(none, Value());
  EXPECT_EQ(own, Value("new"));
  EXPECT_EQ(two, (std::vector<Entry>{{"d/1", "old"}, {"d/2", "old"}}));
  EXPECT_EQ(one, (std::vector<Entry>{{"e/1", "old"}}));
  EXPECT_EQ(empty, std::vector<Entry>());
  EXPECT_EQ(after_erasure, (std::vector<Entry>{{"d/2", "old"}, {"d/3", "old"}}));
  EXPECT_EQ(all, after_erasure);
}

// One that changes after it was prefetched, a key or a range, makes the transaction run again.
TEST_P(EngineTest, WhatIsPrefetchedIsWatched) {
  if (GetParam().name == "sqlite") GTEST_SKIP() << "SQLite runs one transaction at a time";
  const auto other = store_->engine(loop_);
  for (const std::string changed : {"a", "r/1"}) {
    int runs = 0;
    Value value;
    std::vector<Entry> entries;
    ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                  std::vector<std::string> keys = {"a"};
                  FF_CO_TRY(co_await txn.prefetch(std::move(keys)));
                  std::vector<GuardedRange> ranges;
                  ranges.push_back({{"r/", "r0", 5}, "guard"});
                  FF_CO_TRY(co_await txn.prefetch_ranges(std::move(ranges)));
                  if (runs++ == 0) {
                    auto changing = other->run(
                        [&changed](Txn& inner) -> Task<Result<void>> {
                          inner.put(changed, "changed");
                          if (changed != "a") inner.put("guard", "");
                          co_return Result<void>();
                        },
                        INT64_MAX);
                    FF_CO_TRY(co_await std::move(changing));
                  }
                  FF_CO_TRY(value, co_await txn.get("a"));
                  const Range range{"r/", "r0", 5};
                  FF_CO_TRY(entries, co_await txn.range(range, "guard"));
                  txn.put("out", value.value_or("") + std::to_string(entries.size()));
                  co_return Result<void>();
                }).ok());
    EXPECT_GE(runs, 2) << changed;
    EXPECT_EQ(get("out"), Value(changed == "a" ? "changed0" : "changed1"));
  }
}

// Each of the keys counts: one that changes before the commit makes the transaction run again.
TEST_P(EngineTest, KeysThatAreReadTogetherAreWatched) {
  if (GetParam().name == "sqlite") GTEST_SKIP() << "SQLite runs one transaction at a time";
  const auto other = store_->engine(loop_);
  put("b", "1");
  for (const std::string changed : {"a", "b"}) {
    int runs = 0;
    std::vector<Value> values;
    ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                  const std::vector<std::string> both = {"a", "b"};
                  FF_CO_TRY(values, co_await txn.get_all(both));
                  if (runs++ == 0) {
                    auto changing = other->run(
                        [&changed](Txn& inner) -> Task<Result<void>> {
                          inner.put(changed, "new");
                          co_return Result<void>();
                        },
                        INT64_MAX);
                    FF_CO_TRY(co_await std::move(changing));
                  }
                  txn.put("c", "");
                  co_return Result<void>();
                }).ok());
    EXPECT_GE(runs, 2);
    EXPECT_EQ(values[changed == "a" ? 0 : 1], Value("new"));
  }
}

TEST_P(EngineTest, RangesAreSortedAsBytesAndCut) {
  const std::vector<std::string> keys = {
      std::string("\0", 1), "a", "a\x01", "aa", "b", "\x7f", "\x80", "\xff"};
  ASSERT_TRUE(run([&](Txn& txn) -> Task<Result<void>> {
                for (const std::string& key : keys) txn.put(key, key);
                co_return Result<void>();
              }).ok());
  const auto names = [](const std::vector<Entry>& entries) {
    std::vector<std::string> out;
    for (const Entry& entry : entries) out.push_back(entry.key);
    return out;
  };
  EXPECT_EQ(names(range({"", "\xff\xff", 100})), keys);
  EXPECT_EQ(names(range({"a", "b", 100})), (std::vector<std::string>{"a", "a\x01", "aa"}));
  EXPECT_EQ(names(range({"a", "b", 2})), (std::vector<std::string>{"a", "a\x01"}));
  EXPECT_TRUE(range({"b", "a", 100}).empty());
  EXPECT_TRUE(range({"a", "a", 100}).empty());
  EXPECT_EQ(end_of_prefix("a"), "b");
  EXPECT_EQ(end_of_prefix("a\xff\xff"), "b");
}

TEST_P(EngineTest, AnErrorLeavesNothing) {
  const auto failed = run([](Txn& txn) -> Task<Result<void>> {
    txn.put("a", "1");
    co_return fail(Errc::exists, "enough");
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::exists);
  EXPECT_EQ(failed.error().message, "enough");
  EXPECT_EQ(get("a"), Value());
}

TEST_P(EngineTest, LimitsAreTheSameForAll) {
  const auto many = [](size_t count) -> TxnFunction {
    return [count](Txn& txn) -> Task<Result<void>> {
      for (size_t i = 0; i < count; i++) txn.put(std::to_string(i), "");
      co_return Result<void>();
    };
  };
  EXPECT_TRUE(run(many(kWritesMax)).ok());
  EXPECT_FALSE(run(many(kWritesMax + 1)).ok());
  const auto large = [](size_t bytes) -> TxnFunction {
    return [bytes](Txn& txn) -> Task<Result<void>> {
      txn.put("k", std::string(bytes - 1, 'x'));
      co_return Result<void>();
    };
  };
  EXPECT_TRUE(run(large(kBytesMax)).ok());
  EXPECT_FALSE(run(large(kBytesMax + 1)).ok());
  const auto reads = [](size_t count) -> TxnFunction {
    return [count](Txn& txn) -> Task<Result<void>> {
      for (size_t i = 0; i < count; i++) {
        FF_CO_TRY(co_await txn.get(std::to_string(i)));
      }
      co_return Result<void>();
    };
  };
  EXPECT_TRUE(run(reads(kReadsMax)).ok());
  const auto over = run(reads(kReadsMax + 1));
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, Errc::failed);
}

// Adds one to a counter, once: the mark tells that an earlier run has taken effect.
Task<Result<void>> count_up(Engine& engine, std::string counter, std::string mark) {
  auto running = engine.run(
      [&](Txn& txn) -> Task<Result<void>> {
        FF_CO_TRY(const auto done, co_await txn.get(mark));
        if (done) co_return Result<void>();
        FF_CO_TRY(const auto old, co_await txn.get(counter));
        txn.put(counter, std::to_string(std::stoi(old.value_or("0")) + 1));
        txn.put(mark, "");
        co_return Result<void>();
      },
      INT64_MAX);
  co_return co_await std::move(running);
}

Task<void> count_many(Engine& engine, std::string name, int times) {
  for (int i = 0; i < times; i++) {
    auto counting = count_up(engine, "counter", fmt::format("{}-{}", name, i));
    const auto done = co_await std::move(counting);
    EXPECT_TRUE(done.ok());
  }
}

TEST_P(EngineTest, NoUpdateIsLost) {
  constexpr int kTasks = 8, kTimes = 20;
  Gate gate(loop_);
  for (int i = 0; i < kTasks; i++) gate.spawn(count_many(*engine_, std::to_string(i), kTimes));
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(get("counter"), Value(std::to_string(kTasks * kTimes)));
}

TEST_P(EngineTest, NoUpdateIsLostBetweenThreads) {
  if (!store_->threads()) GTEST_SKIP() << "one thread only";
  constexpr int kThreads = 4, kTimes = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([this, i] {
      SystemLoop loop(clock_);
      const auto engine = store_->engine(loop);
      run_task(loop, count_many(*engine, std::to_string(i), kTimes));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(get("counter"), Value(std::to_string(kThreads * kTimes)));
}

// Two on call; each of many tries to leave if another stays. Snapshot isolation would let all go.
TEST_P(EngineTest, NoWriteSkew) {
  put("on-call/a", "");
  put("on-call/b", "");
  const auto leave = [this](std::string me, std::string other) -> Task<void> {
    auto running = engine_->run(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(const auto stays, co_await txn.get(other));
          if (stays) txn.erase(me);
          co_return Result<void>();
        },
        INT64_MAX);
    EXPECT_TRUE((co_await std::move(running)).ok());
  };
  for (int i = 0; i < 20; i++) {
    put("on-call/a", "");
    put("on-call/b", "");
    Gate gate(loop_);
    gate.spawn(leave("on-call/a", "on-call/b"));
    gate.spawn(leave("on-call/b", "on-call/a"));
    run_task(loop_, gate.wait_empty());
    EXPECT_NE(get("on-call/a").has_value(), get("on-call/b").has_value());
  }
}

// As many seats as a range has entries: nobody may slip in between the look and the commit.
TEST_P(EngineTest, NoPhantoms) {
  constexpr size_t kSeats = 5;
  const Range seats{"seat/", "seat0", 100};
  const auto sit = [&](int guest) -> Task<void> {
    auto running = engine_->run(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(const auto taken, co_await txn.range(seats, "seats"));
          if (taken.size() >= kSeats) co_return Result<void>();
          txn.put(fmt::format("seat/{:02}", guest), "");
          txn.put("seats", "");
          co_return Result<void>();
        },
        INT64_MAX);
    EXPECT_TRUE((co_await std::move(running)).ok());
  };
  Gate gate(loop_);
  for (int guest = 0; guest < 16; guest++) gate.spawn(sit(guest));
  run_task(loop_, gate.wait_empty());
  EXPECT_EQ(range(seats).size(), kSeats);
}

// Two keys that are always changed together are never seen apart.
TEST_P(EngineTest, AViewIsOneSnapshot) {
  put("x", "0");
  put("y", "0");
  bool over = false;
  const auto change = [&]() -> Task<void> {
    for (int i = 1; i <= 50; i++) {
      auto running = engine_->run(
          [&](Txn& txn) -> Task<Result<void>> {
            txn.put("x", std::to_string(i));
            txn.put("y", std::to_string(i));
            co_return Result<void>();
          },
          INT64_MAX);
      EXPECT_TRUE((co_await std::move(running)).ok());
    }
    over = true;
  };
  int looks = 0;
  const auto look = [&]() -> Task<void> {
    while (!over) {
      Value x, y;
      auto viewing = engine_->view(
          [&](Txn& txn) -> Task<Result<void>> {
            FF_CO_TRY(x, co_await txn.get("x"));
            FF_CO_TRY(y, co_await txn.get("y"));
            co_return Result<void>();
          },
          INT64_MAX);
      EXPECT_TRUE((co_await std::move(viewing)).ok());
      EXPECT_EQ(x, y);
      looks++;
      YieldWait yield(loop_);
      (void)co_await yield;
    }
  };
  Gate gate(loop_);
  gate.spawn(look());
  gate.spawn(change());
  run_task(loop_, gate.wait_empty());
  EXPECT_GT(looks, 0);
  EXPECT_EQ(get("x"), Value("50"));
}

TEST_P(EngineTest, WhatHasReturnedIsSeenByEveryEngine) {
  const auto other = store_->engine(loop_);
  for (int i = 0; i < 20; i++) {
    const std::string text = std::to_string(i);
    put("a", text);
    Value seen;
    ASSERT_TRUE(run_task(loop_, other->view(
                                    [&](Txn& txn) -> Task<Result<void>> {
                                      FF_CO_TRY(seen, co_await txn.get("a"));
                                      co_return Result<void>();
                                    },
                                    INT64_MAX))
                    .ok());
    EXPECT_EQ(seen, Value(text));
  }
}

// Whoever has made a change sees it, and so do all others from then on, durable or not.
TEST_P(EngineTest, WhatIsDurableSoonIsSeenAtOnce) {
  const auto other = store_->engine(loop_);
  const auto look_at = [&](Engine& engine) {
    Value seen;
    auto looking = engine.view_inline(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(seen, co_await txn.get("a"));
          co_return Result<void>();
        },
        INT64_MAX);
    EXPECT_TRUE(run_task(loop_, std::move(looking)).ok());
    return seen;
  };
  EXPECT_EQ(look_at(*engine_), Value());
  for (int i = 0; i < 20; i++) {
    const std::string text = std::to_string(i);
    Value before;
    auto changing = engine_->run_async_commit(
        [&](Txn& txn) -> Task<Result<void>> {
          FF_CO_TRY(before, co_await txn.get("a"));
          txn.put("a", text);
          co_return Result<void>();
        },
        INT64_MAX);
    ASSERT_TRUE(run_task(loop_, std::move(changing)).ok());
    if (i > 0 && before != Value(text)) {  // it may have run again after it took effect
      EXPECT_EQ(before, Value(std::to_string(i - 1)));
    }
    EXPECT_EQ(look_at(*engine_), Value(text));
    EXPECT_EQ(look_at(*other), Value(text));
    EXPECT_EQ(get("a"), Value(text));
    if (i % 5 == 0) {
      EXPECT_TRUE(run_task(loop_, engine_->sync(INT64_MAX)).ok());
    }
  }
}

TEST_P(EngineTest, AnErrorOfOneThatIsDurableSoonLeavesNothing) {
  const auto soon = [this](TxnFunction function) {
    return run_task(loop_, engine_->run_async_commit(std::move(function), INT64_MAX));
  };
  put("a", "1");
  const auto failed = soon([](Txn& txn) -> Task<Result<void>> {
    txn.put("a", "2");
    co_return fail(Errc::exists, "enough");
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::exists);
  const auto too_many = soon([](Txn& txn) -> Task<Result<void>> {
    for (size_t i = 0; i <= kWritesMax; i++) txn.put(fmt::format("b{}", i), "");
    co_return Result<void>();
  });
  EXPECT_FALSE(too_many.ok());
  EXPECT_EQ(get("a"), Value("1"));
  EXPECT_EQ(get("b0"), Value());
  const auto looked = run_task(
      loop_,
      engine_->view_inline([](Txn&) -> Task<Result<void>> { co_return fail(Errc::exists, "no"); },
                           INT64_MAX));
  ASSERT_FALSE(looked.ok());
  EXPECT_EQ(looked.error().code, Errc::exists);
}

TEST_P(EngineTest, ACancelledTaskBeginsNothing) {
  Gate gate(loop_);
  Result<void> result;
  gate.spawn([](Engine& engine, Result<void>& out) -> Task<void> {
    auto running = engine.run(
        [](Txn& txn) -> Task<Result<void>> {
          txn.put("a", "1");
          co_return Result<void>();
        },
        INT64_MAX);
    out = co_await std::move(running);
  }(*engine_, result));
  gate.cancellation().request(fail(Errc::interrupted, "enough"));
  run_task(loop_, gate.wait_empty());
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "enough");
  EXPECT_EQ(get("a"), Value());
}

}  // namespace
}  // namespace ff::kv

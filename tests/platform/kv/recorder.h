// Clients that run random transactions and record their reads and writes for HistorySearch. They
// use few keys, so that they conflict: registers, a pair whose sum must not fall below zero, and a
// range in which keys are inserted and erased.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/kv/history.h"

namespace ff::kv {

class RecordingClient {
 public:
  RecordingClient(Engine& engine, Loop& loop, uint64_t seed, std::string name)
      : engine_(engine), loop_(loop), rng_(seed), name_(std::move(name)) {}

  // Runs `times` transactions; stops early if the outcome of one is unknown.
  Task<void> go(int times, int64_t patience_ns) {
    for (int i = 0; i < times; i++) {
      const bool known = co_await one(i, loop_.now_ns() + patience_ns);
      if (!known) co_return;
    }
  }
  const std::vector<Recorded>& history() const { return history_; }

 private:
  static constexpr uint64_t kKeys = 4;
  static constexpr const char* kGuard = "seats";

  // An earlier run may have taken effect: the mark identifies it, and that run is recorded.
  Task<bool> one(int number, int64_t deadline_ns) {
    const uint64_t kind = rng_.below(10), a = rng_.below(kKeys), b = rng_.below(kKeys);
    const std::string mark = fmt::format("mark/{}", name_);
    std::vector<Recorded> runs;
    size_t counted = 0;
    const int64_t begin_ns = loop_.now_ns();
    const bool reads_only = kind == 0;
    TxnFunction function = [&](Txn& txn) -> Task<Result<void>> {
      runs.push_back({.begin_ns = begin_ns, .reads = {}, .writes = {}});
      counted = runs.size() - 1;
      const std::string value = fmt::format("{}.{}.{}", name_, number, counted);
      if (!reads_only) {
        FF_CO_TRY(const auto done, co_await txn.get(mark));
        const std::string prefix = fmt::format("{}.{}.", name_, number);
        if (done && done->starts_with(prefix)) {
          counted = std::stoul(done->substr(prefix.size()));
          co_return Result<void>();
        }
        txn.put(mark, value);
      }
      auto doing = act(txn, runs.back(), kind, {a, b}, value);
      FF_CO_TRY(co_await std::move(doing));
      runs.back().writes = txn.writes();
      runs.back().writes.erase(mark);  // read by nobody else
      runs.back().writes.erase(kGuard);
      co_return Result<void>();
    };
    auto running =
        reads_only ? engine_.view(function, deadline_ns) : engine_.run(function, deadline_ns);
    const auto result = co_await std::move(running);
    if (result) {
      history_.push_back(runs.at(counted));
      history_.back().end_ns = loop_.now_ns();
      co_return true;
    }
    EXPECT_TRUE(result.error().code == Errc::unreachable || result.error().code == Errc::deadline)
        << result.error().message;
    if (reads_only) co_return true;  // seen by nobody
    // Any run may be the one; those that only read leave no trace, the values tell the others
    // apart.
    for (const Recorded& run : runs) unknown_.push_back(run);
    co_return false;
  }

  Task<Result<void>> act(Txn& txn, Recorded& record, uint64_t kind,
                         std::pair<uint64_t, uint64_t> keys, std::string value) {
    const std::string a = fmt::format("reg/{}", keys.first);
    const std::string b = fmt::format("reg/{}", keys.second);
    const std::string seat = fmt::format("seat/{}", keys.first);
    if (kind <= 3) {  // a snapshot, or an update: one key decides what becomes of the other
      FF_CO_TRY(co_await read(txn, record, a));
      FF_CO_TRY(co_await read(txn, record, b));
      if (kind != 0) txn.put(a, value);
    } else if (kind <= 5) {  // blind
      txn.put(a, value);
      txn.put(b, value);
    } else {  // in the range: look at all, then add, take away, or move
      FF_CO_TRY(const size_t taken, co_await read_seats(txn, record));
      if (kind <= 7 && taken < 3) txn.put(seat, value);
      if (kind >= 8) txn.erase(seat);
      if (kind == 9) txn.put(a, value);
      txn.put(kGuard, value);
    }
    co_return Result<void>();
  }
  Task<Result<void>> read(Txn& txn, Recorded& record, std::string key) {
    FF_CO_TRY(const auto value, co_await txn.get(key));
    Recorded::Read seen{key, {}, {}};
    if (value) seen.found.emplace(key, *value);
    record.reads.push_back(std::move(seen));
    co_return Result<void>();
  }
  Task<Result<size_t>> read_seats(Txn& txn, Recorded& record) {
    Range all{"seat/", end_of_prefix("seat/"), 10};
    Recorded::Read seen{all.begin, all.end, {}};
    FF_CO_TRY(const auto entries, co_await txn.range(std::move(all), kGuard));
    for (const Entry& entry : entries) seen.found.emplace(entry.key, entry.value);
    record.reads.push_back(std::move(seen));
    co_return entries.size();
  }

 public:
  // Runs that may have taken effect, each as the only transaction of a separate client.
  const std::vector<Recorded>& unknown() const { return unknown_; }

 private:
  Engine& engine_;
  Loop& loop_;
  SeededRng rng_;
  const std::string name_;
  std::vector<Recorded> history_;
  std::vector<Recorded> unknown_;
};

// Whether the transactions of these clients are strictly serializable.
inline testing::AssertionResult serializable(
    const std::vector<std::unique_ptr<RecordingClient>>& clients) {
  std::vector<std::vector<Recorded>> histories;
  for (const auto& client : clients) {
    histories.push_back(client->history());
    for (const Recorded& one : client->unknown()) histories.push_back({one});
  }
  HistorySearch search(histories);
  if (search.serializable()) return testing::AssertionSuccess();
  auto failure = testing::AssertionFailure() << "no order explains the history; got to";
  for (size_t c = 0; c < histories.size(); c++) {
    failure << " " << search.longest()[c] << "/" << histories[c].size();
  }
  return failure;
}

}  // namespace ff::kv

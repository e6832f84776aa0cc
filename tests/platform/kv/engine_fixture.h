// What the tests of engines on real servers share: reads and writes of one key, waiting, clocks
// that jump, and recorded histories of many clients while a test causes faults.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/system_loop.h"
#include "platform/kv/engine.h"
#include "platform/kv/recorder.h"

namespace ff::kv {

using Value = std::optional<std::string>;

// The machine's clocks, with an offset of the wall clock, until they jump ahead, as they do for a
// process that was not let run.
class ShiftedClock final : public Clock {
 public:
  explicit ShiftedClock(int64_t wall_offset_ns = 0) : wall_offset_ns_(wall_offset_ns) {}
  int64_t wall_ns() override { return real_.wall_ns() + wall_offset_ns_ + jumped_ns_; }
  int64_t steady_ns() override { return real_.steady_ns() + jumped_ns_; }
  void sleep_ns(int64_t ns) override { real_.sleep_ns(ns); }
  void jump(int64_t ns) { jumped_ns_ += ns; }

 private:
  SystemClock real_;
  const int64_t wall_offset_ns_;
  int64_t jumped_ns_ = 0;
};

class EngineFixture : public testing::Test {
 protected:
  using MakeEngine = std::function<std::unique_ptr<Engine>(Loop& loop, uint64_t seed)>;

  int64_t in(int64_t ns) { return clock_.steady_ns() + ns; }
  Result<void> put(Engine& engine, const std::string& key, const std::string& value,
                   int64_t patience_ns = 60 * kSecond) {
    return run_task(loop_, engine.run(
                               [&](Txn& txn) -> Task<Result<void>> {
                                 txn.put(key, value);
                                 co_return Result<void>();
                               },
                               in(patience_ns)));
  }
  Result<Value> get(Engine& engine, const std::string& key, int64_t patience_ns = 60 * kSecond) {
    Value value;
    FF_TRY(run_task(loop_, engine.view(
                               [&](Txn& txn) -> Task<Result<void>> {
                                 FF_CO_TRY(value, co_await txn.get(key));
                                 co_return Result<void>();
                               },
                               in(patience_ns))));
    return value;
  }
  // Runs the loop until the condition holds.
  template <class Condition>
  void wait_until(Condition condition) {
    const int64_t deadline_ns = in(60 * kSecond);
    while (!condition()) {
      ASSERT_LT(clock_.steady_ns(), deadline_ns);
      pause(kMillisecond);
    }
  }
  void pause(int64_t ns) {
    (void)run_task(loop_, [](Loop& loop, int64_t wait_ns) -> Task<Result<void>> {
      co_return co_await sleep_for(loop, wait_ns);
    }(loop_, ns));
  }

  // A task whose clock jumps past its deadline while no server answers says why it had to wait.
  void check_woken_too_late(const MakeEngine& make) {
    ShiftedClock clock;
    SystemLoop loop(clock);
    const auto engine = make(loop, 1);
    const TxnFunction look = [](Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(co_await txn.get("a"));
      co_return Result<void>();
    };
    const TxnFunction write = [](Txn& txn) -> Task<Result<void>> {
      txn.put("a", "1");
      co_return Result<void>();
    };
    const auto jump = [&]() -> Task<void> {
      if (co_await sleep_for(loop, 100 * kMillisecond)) clock.jump(3600 * kSecond);
    };
    for (int round = 0; round < 4; round++) {
      Gate gate(loop);
      gate.spawn(jump());
      const int64_t deadline_ns = clock.steady_ns() + 600 * kSecond;
      const auto refused = run_task(
          loop, round % 2 == 0 ? engine->view(look, deadline_ns) : engine->run(write, deadline_ns));
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Errc::unreachable) << refused.error().message;
      run_task(loop, gate.wait_empty());
    }
  }

  // The transactions of several clients on two loops, `times` each, while `faults` runs.
  // `clients_run()` tells whether some are still to come.
  void check_history(const MakeEngine& make, int times, const std::function<void()>& faults) {
    const uint64_t seed = system_seed();
    std::cout << "seed " << seed << "\n";
    std::vector<std::unique_ptr<RecordingClient>> clients(6);
    std::vector<std::thread> threads;
    loops_ = 2;
    for (uint64_t t = 0; t < 2; t++) {
      threads.emplace_back([&, t] {
        SystemLoop loop(clock_);
        const auto engine = make(loop, seed + t);
        Gate gate(loop);
        for (uint64_t c = t; c < clients.size(); c += 2) {
          clients[c] =
              std::make_unique<RecordingClient>(*engine, loop, seed + c, fmt::format("c{}", c));
          gate.spawn(clients[c]->go(times, 60 * kSecond));
        }
        run_task(loop, gate.wait_empty());
        loops_--;
      });
    }
    faults();
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(serializable(clients));
    size_t known = 0;
    for (const auto& client : clients) known += client->history().size();
    EXPECT_GT(known, 100u);
  }
  bool clients_run() const { return loops_ > 0; }

  SystemClock clock_;
  SystemLoop loop_{clock_};
  SeededRng rng_{system_seed()};
  Metrics metrics_;

 private:
  std::atomic<int> loops_{0};
};

}  // namespace ff::kv

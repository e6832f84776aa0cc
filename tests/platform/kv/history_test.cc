// The history checker against invalid histories of every kind, and every engine with many clients
// against the checker.
#include "platform/kv/history.h"

#include <gtest/gtest.h>

#include <thread>

#include "platform/kv/recorder.h"
#include "platform/kv/tested_engines.h"

namespace ff::kv {
namespace {

using Histories = std::vector<std::vector<Recorded>>;
using State = std::map<std::string, std::string>;

Recorded::Read saw(const std::string& key, const State& found) { return {key, {}, found}; }
Recorded::Read saw_seats(const State& found) { return {"seat/", "seat0", found}; }

// From `begin` to `end`.
Recorded did(int64_t begin, int64_t end, std::vector<Recorded::Read> reads, Txn::Writes writes) {
  return {begin, end, std::move(reads), std::move(writes)};
}

bool right(const Histories& histories) { return HistorySearch(histories).serializable(); }

TEST(HistorySearchTest, OneAfterTheOther) {
  EXPECT_TRUE(right({}));
  EXPECT_TRUE(right({{did(1, 2, {saw("a", {})}, {{"a", "1"}}),
                      did(3, 4, {saw("a", {{"a", "1"}})}, {{"a", std::nullopt}}),
                      did(5, 6, {saw("a", {})}, {})}}));
  EXPECT_FALSE(right({{did(1, 2, {}, {{"a", "1"}}), did(3, 4, {saw("a", {})}, {})}}));
}

TEST(HistorySearchTest, WhatOverlapsMayStandEitherWay) {
  const auto write = did(1, 10, {}, {{"a", "1"}});
  EXPECT_TRUE(right({{write}, {did(2, 3, {saw("a", {})}, {})}}));
  EXPECT_TRUE(right({{write}, {did(2, 3, {saw("a", {{"a", "1"}})}, {})}}));
  EXPECT_FALSE(
      right({{write}, {did(2, 3, {saw("a", {{"a", "1"}})}, {}), did(4, 5, {saw("a", {})}, {})}}));
  EXPECT_FALSE(right({{write}, {did(11, 12, {saw("a", {})}, {})}}));
}

TEST(HistorySearchTest, LostUpdate) {
  EXPECT_FALSE(right(
      {{did(1, 5, {saw("a", {})}, {{"a", "1"}})}, {did(1, 5, {saw("a", {})}, {{"a", "2"}})}}));
}

TEST(HistorySearchTest, WriteSkew) {
  EXPECT_FALSE(right({{did(1, 5, {saw("a", {}), saw("b", {})}, {{"a", "1"}})},
                      {did(1, 5, {saw("a", {}), saw("b", {})}, {{"b", "2"}})}}));
}

TEST(HistorySearchTest, Phantom) {
  const auto first = did(1, 5, {saw_seats({})}, {{"seat/1", "x"}});
  EXPECT_FALSE(right({{first}, {did(1, 5, {saw_seats({})}, {{"seat/2", "y"}})}}));
  EXPECT_TRUE(right({{first}, {did(1, 5, {saw_seats({{"seat/1", "x"}})}, {{"seat/2", "y"}})}}));
}

TEST(HistorySearchTest, RangeDelete) {
  const Histories before = {{did(1, 2, {}, {{"seat/1", "x"}, {"seat/2", "y"}})}};
  const State both = {{"seat/1", "x"}, {"seat/2", "y"}};
  auto histories = before;
  histories.push_back({did(3, 9, {saw_seats(both)}, {{"seat/1", std::nullopt}})});
  histories.push_back({did(3, 9, {saw_seats(both)}, {{"seat/2", std::nullopt}})});
  EXPECT_FALSE(right(histories));
}

TEST(HistorySearchTest, UnknownOutcomes) {
  const auto unknown = did(1, Recorded::kNever, {}, {{"a", "1"}});
  const auto reads = [](int64_t at, State found) { return did(at, at + 1, {saw("a", found)}, {}); };
  EXPECT_TRUE(right({{unknown}, {reads(3, {}), reads(5, {})}}));
  EXPECT_TRUE(right({{unknown}, {reads(3, {}), reads(5, {{"a", "1"}})}}));
  EXPECT_FALSE(right({{unknown}, {reads(3, {{"a", "1"}}), reads(5, {})}}));
  // It cannot take effect twice.
  const auto over = did(5, 6, {}, {{"a", "2"}});
  EXPECT_FALSE(right({{unknown}, {reads(3, {{"a", "1"}}), over, reads(7, {{"a", "1"}})}}));
}

class HistoryTest : public testing::TestWithParam<EngineKind> {};

INSTANTIATE_TEST_SUITE_P(Engines, HistoryTest, testing::ValuesIn(engine_kinds()),
                         [](const auto& kind) { return kind.param.name; });

constexpr int64_t kPatienceNs = 60 * kSecond;

TEST_P(HistoryTest, ManyClientsOnOneLoop) {
  for (int round = 0; round < 3; round++) {
    const uint64_t seed = system_seed();
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const auto store = GetParam().make();
    SystemClock clock;
    SystemLoop loop(clock);
    const auto one = store->engine(loop), other = store->engine(loop);
    std::vector<std::unique_ptr<RecordingClient>> clients;
    Gate gate(loop);
    for (uint64_t c = 0; c < 6; c++) {
      clients.push_back(std::make_unique<RecordingClient>(c % 2 == 0 ? *one : *other, loop,
                                                          seed + c, fmt::format("c{}", c)));
      gate.spawn(clients.back()->go(40, kPatienceNs));
    }
    run_task(loop, gate.wait_empty());
    ASSERT_TRUE(serializable(clients));
  }
}

TEST_P(HistoryTest, ManyLoops) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const auto store = GetParam().make();
  if (!store->threads()) GTEST_SKIP() << "one thread only";
  SystemClock clock;
  std::vector<std::unique_ptr<RecordingClient>> clients(4);
  std::vector<std::thread> threads;
  for (uint64_t c = 0; c < clients.size(); c++) {
    threads.emplace_back([&, c] {
      SystemLoop loop(clock);
      const auto engine = store->engine(loop);
      clients[c] =
          std::make_unique<RecordingClient>(*engine, loop, seed + c, fmt::format("c{}", c));
      run_task(loop, clients[c]->go(50, kPatienceNs));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(serializable(clients));
}

}  // namespace
}  // namespace ff::kv

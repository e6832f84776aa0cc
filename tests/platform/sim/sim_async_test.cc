// Disk I/O of simulated processes: a run repeats from its seed, operations take virtual time and
// finish in any order, and a crash finds them in flight.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/io/async.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_disk.h"
#include "platform/sim/sim_world.h"

namespace ff::sim {
namespace {

constexpr size_t kPiece = 5000;

// A simulated process with a disk and one file.
class SimAsync {
 public:
  explicit SimAsync(uint64_t seed, unsigned depth = 8)
      : disk(seed, world.clock()), queue(disk, world.loop(), depth) {
    file = open();
    FF_CHECK(disk.sync_dir("/").ok());
  }
  std::unique_ptr<io::File> open() {
    return disk.open("/file", {.access = io::AccessMode::read_write, .create = true}).value();
  }
  Loop& loop() { return world.loop(); }

  SimWorld world;
  SimDisk disk;
  std::unique_ptr<io::File> file;
  io::AsyncQueue queue;
};

std::vector<std::byte> piece(size_t id) { return io::random_bytes(kPiece, id + 1); }

Task<void> writer(SimAsync& sim, size_t id, std::string& trace, std::set<size_t>& safe) {
  const auto bytes = piece(id);
  const auto written = co_await sim.queue.write(*sim.file, bytes, id * kPiece);
  trace += fmt::format("{}w{}@{};", id, written.ok(), sim.loop().now_ns());
  if (!written) co_return;
  const auto synced = co_await sim.queue.sync(*sim.file);
  trace += fmt::format("{}s{}@{};", id, synced.ok(), sim.loop().now_ns());
  if (synced) safe.insert(id);
}

std::string run_writers(uint64_t seed) {
  SimAsync sim(seed);
  std::string trace;
  std::set<size_t> safe;
  Gate gate(sim.loop());
  for (size_t id = 0; id < 60; ++id) gate.spawn(writer(sim, id, trace, safe));
  sim.world.run_for(INT64_MAX / 2);
  EXPECT_EQ(gate.running(), 0u);
  EXPECT_EQ(safe.size(), 60u);
  return trace;
}

TEST(SimAsyncTest, EqualSeedsGiveEqualRuns) {
  EXPECT_EQ(run_writers(1), run_writers(1));
  EXPECT_NE(run_writers(1), run_writers(2));
}

Task<void> timed(SimAsync& sim, size_t id, std::vector<size_t>& order,
                 std::vector<int64_t>& taken_ns) {
  const int64_t begin_ns = sim.loop().now_ns();
  std::vector<std::byte> into(10);
  EXPECT_TRUE(io::ok(co_await sim.queue.read(*sim.file, into, 0)));
  order.push_back(id);
  taken_ns.push_back(sim.loop().now_ns() - begin_ns);
}

TEST(SimAsyncTest, OperationsTakeTimeAndFinishInAnyOrder) {
  SimAsync sim(1, 500);
  std::vector<size_t> order;
  std::vector<int64_t> taken_ns;
  Gate gate(sim.loop());
  for (size_t id = 0; id < 500; ++id) gate.spawn(timed(sim, id, order, taken_ns));
  sim.loop().run();
  ASSERT_EQ(order.size(), 500u);
  EXPECT_FALSE(std::ranges::is_sorted(order));
  std::ranges::sort(taken_ns);
  EXPECT_GT(taken_ns.front(), 0);
  EXPECT_GT(taken_ns.back(), 20 * taken_ns[250]);  // a slow one now and then
}

// At every operation of the run: what was synced before is there afterwards, whatever was in
// flight; and every task hears of the crash.
TEST(SimAsyncTest, ACrashFindsOperationsInFlight) {
  size_t lost = 0;
  size_t kept_unsynced = 0;
  for (uint64_t at = 1; at < 40; ++at) {
    SCOPED_TRACE(at);
    SimAsync sim(at);
    sim.disk.crash_at(sim.disk.mutations() + at);
    std::string trace;
    std::set<size_t> safe;
    Gate gate(sim.loop());
    for (size_t id = 0; id < 20; ++id) gate.spawn(writer(sim, id, trace, safe));
    sim.loop().run();
    ASSERT_EQ(gate.running(), 0u);  // none waits for ever
    EXPECT_TRUE(sim.disk.crashed());
    EXPECT_LT(safe.size(), 20u);
    sim.disk.power_loss();
    const auto again = sim.open();
    for (size_t id = 0; id < 20; ++id) {
      std::vector<std::byte> into(kPiece);
      const auto got = again->read_at(into, id * kPiece);
      ASSERT_TRUE(io::ok(got));
      const bool there = *got == kPiece && into == piece(id);
      EXPECT_TRUE(there || !safe.contains(id)) << id;
      lost += !there;
      kept_unsynced += there && !safe.contains(id);
    }
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(kept_unsynced, 0u);
}

TEST(SimAsyncTest, AKilledProcessLeavesItsQueueInPeace) {
  SimAsync sim(7);
  std::string trace;
  std::set<size_t> safe;
  Gate gate(sim.loop());
  for (size_t id = 0; id < 20; ++id) gate.spawn(writer(sim, id, trace, safe));
  sim.world.run_for(1000);
  EXPECT_EQ(sim.queue.in_flight(), 8u);
  sim.disk.kill();  // the handles are dead, the machine lives
  sim.loop().run();
  EXPECT_EQ(gate.running(), 0u);
  EXPECT_TRUE(safe.empty());
}

}  // namespace
}  // namespace ff::sim

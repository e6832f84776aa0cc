// Random changes against a model of what was acknowledged, with crashes, power losses, failing and
// full disks, on the simulated disk; and compaction that is interrupted at each of its writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "storage/kvstore/kv_world.h"

namespace ff::kvstore {
namespace {

using Value = std::optional<std::string>;

// What the keys of one writer can be. They change together: each call puts or removes a pair.
struct Pair {
  std::string key;                  // "{key}a" and "{key}b"
  Value acknowledged = {};          // of the last call that succeeded
  std::vector<Value> unknown = {};  // of calls that failed since
  std::set<Value> history = {};

  std::string half(std::string_view name) const { return fmt::format("{{{}}}{}", key, name); }
  bool may_be(const Value& value) const {
    if (value == acknowledged) return true;
    return std::find(unknown.begin(), unknown.end(), value) != unknown.end();
  }
};

class ModelRun {
 public:
  ModelRun(uint64_t seed, bool durable) : dice_(seed), w_(seed), durable_(durable) {
    for (int i = 0; i < 6; ++i) pairs_.push_back({.key = "key" + std::to_string(i)});
    for (Pair& pair : pairs_) pair.history.insert(std::nullopt);
  }

  void run() {
    for (int life = 0; life < 6 && !testing::Test::HasFailure(); ++life) {
      const auto opened = w_.first->open(options());
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      KvWorld::wait_until_owned(*w_.first);
      for (Pair& pair : pairs_) check_after_open(pair);
      if (dice_.below(4) == 0) w_.disk.crash_at(w_.disk.mutations() + dice_.below(400));
      if (dice_.below(4) == 0) w_.disk.set_fault(sim::SimOp::write, 0.05, EIO);
      if (dice_.below(4) == 0) w_.disk.set_fault(sim::SimOp::sync, 0.2, EIO);
      if (dice_.below(4) == 0) w_.disk.set_capacity(50 * kKiB + dice_.below(100) * kKiB);
      run_task(w_.first->loop, write_all());
      end_life();
    }
  }

 private:
  Options options() const {
    Options options = small_options();
    options.durable = durable_;
    options.segment_bytes = 4 * kKiB;
    options.heartbeat_ns = 20 * kMillisecond;  // maintenance runs often
    options.lease_ns = 200 * kMillisecond;
    return options;
  }

  Task<void> write_all() {
    Gate gate(w_.first->loop);
    for (Pair& pair : pairs_) gate.spawn(write_pair(pair));
    co_await gate.wait_empty();
  }

  Task<void> write_pair(Pair& pair) {
    for (int i = 0; i < 40 && !w_.disk.crashed(); ++i) {
      co_await change(pair);
      if (dice_.below(2) == 0) co_await check(pair);
      (void)co_await sleep_for(w_.first->loop, static_cast<int64_t>(dice_.below(5 * kMillisecond)));
    }
  }

  Task<void> change(Pair& pair) {
    Value value;
    if (dice_.below(4) != 0) value = fmt::format("{}-{:0{}}", ++last_, 0, 1 + dice_.below(300));
    std::vector<Change> changes;
    for (const char* const half : {"a", "b"}) {
      const std::string key = pair.half(half);
      changes.push_back(value ? put(key, *value) : removal(key));
    }
    if (value && dice_.below(4) == 0) changes.push_back(expiry(changes[0].key, 0));
    pair.history.insert(value);
    const auto applied = co_await w_.first->store->apply(std::move(changes));
    if (!applied) {
      pair.unknown.push_back(value);
      co_return;
    }
    EXPECT_TRUE(applied->done);
    pair.acknowledged = value;
    // All are of one partition: whatever failed before cannot happen any more.
    for (Pair& any : pairs_) any.unknown.clear();
  }

  Task<Result<Value>> read(std::string key) {
    FF_CO_TRY(auto entry, co_await w_.first->store->get(std::move(key)));
    Value value;
    if (entry) value = std::move(entry->value);
    co_return value;
  }

  // While the process runs: what was acknowledged, whatever failed since.
  Task<void> check(Pair& pair) {
    const auto a = co_await read(pair.half("a"));
    const auto b = co_await read(pair.half("b"));
    if (!a || !b) {
      EXPECT_TRUE(w_.disk.crashed() || a.ok() || a.error().code != Errc::corrupt);
      co_return;
    }
    EXPECT_EQ(*a, pair.acknowledged);
    EXPECT_EQ(*b, pair.acknowledged);
  }

  // What failed may have happened; from now on it is one or the other.
  void check_after_open(Pair& pair) {
    const auto a = run_task(w_.first->loop, read(pair.half("a")));
    const auto b = run_task(w_.first->loop, read(pair.half("b")));
    ASSERT_TRUE(a.ok() && b.ok()) << (a.ok() ? b.error().message : a.error().message);
    EXPECT_EQ(*a, *b) << "half of a change";
    if (lost_power_ && !durable_) {
      EXPECT_TRUE(pair.history.contains(*a));
    } else {
      EXPECT_TRUE(pair.may_be(*a)) << pair.key << " is " << a->value_or("missing") << ", was "
                                   << pair.acknowledged.value_or("missing");
    }
    pair.acknowledged = *a;
    pair.unknown.clear();
  }

  void end_life() {
    w_.disk.set_fault(sim::SimOp::write, 0, 0);
    w_.disk.set_fault(sim::SimOp::sync, 0, 0);
    w_.disk.set_capacity(kGiB);
    lost_power_ = false;
    if (!w_.disk.crashed()) w_.disk.crash_at(UINT64_MAX);
    if (!w_.disk.crashed() && dice_.below(4) == 0) return w_.first->close();
    w_.disk.crash();
    w_.first->kill();
    lost_power_ = dice_.below(2) == 0;
    lost_power_ ? w_.disk.power_loss() : w_.disk.kill();
    w_.disk.crash_at(UINT64_MAX);
  }

  SeededRng dice_;
  KvWorld w_;
  const bool durable_;
  bool lost_power_ = false;
  uint64_t last_ = 0;
  std::vector<Pair> pairs_;
};

TEST(CrashTest, AcknowledgedChangesStay) {
  for (uint64_t seed = 1; seed <= seeds(170); ++seed) {
    for (const bool durable : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (durable ? " durable" : ""));
      ModelRun run(seed, durable);
      run.run();
      if (testing::Test::HasFailure()) return;
    }
  }
}

// A store in which compaction copies, drops removals and removes segments; stopped at each change
// of the disk, by a power loss or a kill.
class CompactionTest : public testing::Test {
 protected:
  static Options options() {
    Options options = small_options();
    options.durable = true;
    options.segment_bytes = 2 * kKiB;
    return options;
  }
  static void fill(KvWorld& w) {
    ASSERT_TRUE(w.first->open(options()).ok());
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(w.first->put(std::to_string(i), std::string(100, 'x')).ok());
    }
    for (int i = 0; i < 60; ++i) {
      const std::string key = std::to_string(i);
      const bool ok = i % 4 == 0 || (i % 4 == 1 ? w.first->remove(key) : w.first->put(key, "new"));
      ASSERT_TRUE(ok) << i;
    }
  }
  static void check(KvWorld& w) {
    for (int i = 0; i < 60; ++i) {
      const std::string expected = i % 4 == 0   ? std::string(100, 'x')
                                   : i % 4 == 1 ? std::string("(none)")
                                                : std::string("new");
      EXPECT_EQ(w.first->get(std::to_string(i)), expected) << i;
    }
    EXPECT_EQ(w.first->store->counts(0).keys, 45U);
  }
};

TEST_F(CompactionTest, FreesSpace) {
  KvWorld w;
  fill(w);
  const uint64_t before = w.first->store->counts(0).file_bytes;
  w.first->sleep(10 * kSecond);
  EXPECT_LT(w.first->store->counts(0).file_bytes, before * 3 / 4);
  check(w);
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(w.first->remove(std::to_string(i)).ok());
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(w.first->put("other", std::string(100, 'x')).ok());
  w.first->sleep(20 * kSecond);
  // Nothing is left of removed keys but what the last segment has.
  EXPECT_LE(w.first->store->counts(0).file_bytes, 2 * options().segment_bytes);
  w.reopen(options());
  EXPECT_EQ(w.first->store->counts(0).keys, 1U);
  w.first->sleep(10 * kSecond);
  EXPECT_EQ(w.first->get("7"), "(none)");
}

TEST_F(CompactionTest, MayStopAnywhere) {
  uint64_t mutations = UINT64_MAX;
  for (uint64_t stop = 0; stop < mutations; ++stop) {
    SCOPED_TRACE(testing::Message() << "stopped at " << stop);
    KvWorld w;
    fill(w);
    const uint64_t begin = w.disk.mutations();
    w.disk.crash_at(begin + stop);
    w.first->sleep(5 * kSecond);
    if (!w.disk.crashed()) mutations = stop;  // all done before
    w.disk.crash();
    w.first->kill();
    stop % 2 == 0 ? w.disk.power_loss() : w.disk.kill();
    w.disk.crash_at(UINT64_MAX);
    w.reopen(options());
    check(w);
    w.first->sleep(5 * kSecond);
    check(w);
    w.reopen(options());
    check(w);
    if (HasFailure()) return;
  }
  EXPECT_GT(mutations, 30U);
}

// Of a record and its copy, the next owner uses the copy: the former owner may still remove the
// segment of the other one.
TEST_F(CompactionTest, CopiesCountFromTheNextOpenOn) {
  KvWorld w;
  ASSERT_TRUE(w.first->open(options()).ok());
  ASSERT_TRUE(w.first->put("keep", std::string(100, 'x')).ok());
  // 14 records fill a segment: of the first one, only "keep" stays in use, of the second one all.
  for (int i = 0; i < 27; ++i) {
    ASSERT_TRUE(w.first->put(std::to_string(i % 14), std::string(100, 'x')).ok());
  }
  const std::string oldest = w.files(0, "seg-").at(0);
  w.disk.set_fault(sim::SimOp::name, 1, EIO);  // segments cannot be removed
  w.first->sleep(5 * kSecond);
  w.disk.set_fault(sim::SimOp::name, 0, 0);
  w.first->kill();
  ASSERT_TRUE(w.disk.info(oldest).ok());
  KvProcess second(w.world, w.disk, 2);
  ASSERT_TRUE(second.open(options()).ok());
  KvWorld::wait_until_owned(second);
  second.sleep(5 * kSecond);
  EXPECT_FALSE(w.disk.info(oldest).ok());
  EXPECT_EQ(second.metrics.counter("ff_kvstore_compacted_bytes_total", "").value(), 0U);
  EXPECT_EQ(second.get("keep"), std::string(100, 'x'));
}

// Without `durable`: what was durable once is not given up for something that is not yet.
TEST_F(CompactionTest, ReplacesNothingDurableByWhatIsNot) {
  for (uint64_t seed = 1; seed <= seeds(100); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    KvWorld w(seed);
    Options plain = options();
    plain.durable = false;
    ASSERT_TRUE(w.first->open(plain).ok());
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(w.first->put(std::to_string(i), "old").ok());
    w.first->close();
    ASSERT_TRUE(w.first->open(plain).ok());
    for (int i = 0; i < 40; ++i) ASSERT_TRUE(w.first->put(std::to_string(i), "new").ok());
    if (seed % 2 == 0) w.disk.set_fault(sim::SimOp::sync, 0.5, EIO);
    w.first->sleep(static_cast<int64_t>(SeededRng(seed).below(30 * kSecond)));
    w.disk.set_fault(sim::SimOp::sync, 0, 0);
    w.disk.crash();
    w.first->kill();
    w.disk.power_loss();
    w.reopen(plain);
    for (int i = 0; i < 40; ++i) {
      const std::string got = w.first->get(std::to_string(i));
      EXPECT_TRUE(got == "old" || got == "new") << i << ": " << got;
    }
  }
}

}  // namespace
}  // namespace ff::kvstore

// Large values, which another process than the owner writes: what it reserves, writes and confirms,
// and that nothing acknowledged is lost or torn wherever one of them is stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/kvstore/kv_world.h"
#include "storage/kvstore/reservation_writer.h"
#include "storage/kvstore/store_reader.h"

namespace ff::kvstore {
namespace {

// A process that writes values by itself, and reads as a reader.
class WriterProcess {
 public:
  WriterProcess(sim::SimWorld& world, io::Disk& disk, size_t buffers = 0) : loop(world) {
    auto made = ReservationWriter::make(disk, loop, kFolder, {.buffers = buffers});
    EXPECT_TRUE(made.ok());
    writer_ = std::move(*made);
    auto opened = StoreReader::open(disk, loop, kFolder, {.max_age_ns = 0, .buffers = buffers});
    EXPECT_TRUE(opened.ok());
    reader_ = std::move(*opened);
  }
  Result<void> write(const RecordReservation& to, std::string_view key, std::string_view value) {
    FF_TRY(run_task(loop, writer_->write(0, to, key, value)));
    return run_task(loop, writer_->sync(0, to));
  }
  std::string get(std::string_view key) {
    std::string memory(4 * kMiB, '?');
    const ByteSpan place = writable(memory);
    const auto read = run_task(loop, reader_->read_many(std::span(&key, 1), std::span(&place, 1)));
    if (!read || !read->front()) return "(error)";
    if (!*read->front()) return "(none)";
    return memory.substr(0, (**read->front()).value_bytes);
  }

  sim::SimLoop loop;

 private:
  std::unique_ptr<ReservationWriter> writer_;
  std::unique_ptr<StoreReader> reader_;
};

std::string large(char fill, size_t bytes = 3000) { return std::string(bytes, fill); }

class ReservationsTest : public testing::Test, public KvWorld {
 protected:
  void SetUp() override {
    ASSERT_TRUE(first->open(small_options()).ok());
    writer = std::make_unique<WriterProcess>(world, disk);
  }
  static Result<RecordReservation> reserve(KvProcess& process, const std::string& key,
                                           uint64_t bytes, int64_t expires_ms = 0) {
    return run_task(process.loop, process.store->reserve(key, bytes, expires_ms));
  }
  // "done", "ended", or the code of an error.
  static std::string confirm(KvProcess& process, const std::string& key,
                             const RecordReservation& reservation) {
    const auto confirmed = run_task(process.loop, process.store->confirm(key, reservation));
    if (!confirmed) return std::string(errc_name(confirmed.error().code));
    return confirmed->done ? "done" : "ended";
  }
  void put_large(KvProcess& process, const std::string& key, const std::string& value) {
    const auto to = reserve(process, key, value.size());
    ASSERT_TRUE(to.ok()) << to.error().message;
    ASSERT_TRUE(writer->write(*to, key, value).ok());
    ASSERT_EQ(confirm(process, key, *to), "done");
  }

  std::unique_ptr<WriterProcess> writer;
};

TEST_F(ReservationsTest, AValueCountsWhenItIsConfirmed) {
  ASSERT_TRUE(first->put("key", "old").ok());
  const auto to = reserve(*first, "key", 3000);
  ASSERT_TRUE(to.ok());
  ASSERT_TRUE(first->put("other", "small").ok());
  ASSERT_TRUE(writer->write(*to, "key", large('n')).ok());
  EXPECT_EQ(first->get("key"), "old");
  EXPECT_EQ(writer->get("key"), "old");
  EXPECT_EQ(confirm(*first, "key", *to), "done");
  EXPECT_EQ(confirm(*first, "key", *to), "ended");
  EXPECT_EQ(first->get("key"), large('n'));
  EXPECT_EQ(writer->get("key"), large('n'));
  EXPECT_EQ(first->store->find("key")->value().version, to->version);
  const auto counts = first->store->counts(0);
  EXPECT_EQ(counts.keys, 2U);
  EXPECT_LT(counts.live_bytes, 3200U);
  for (const bool sealed : {false, true}) {
    sealed ? first->close() : first->kill();
    ASSERT_TRUE(first->open(small_options()).ok());
    wait_until_owned(*first);
    EXPECT_EQ(first->get("key"), large('n')) << sealed;
    EXPECT_EQ(first->get("other"), "small");
    EXPECT_EQ(first->store->counts(0).live_bytes, counts.live_bytes);
    EXPECT_EQ(WriterProcess(world, disk).get("key"), large('n')) << sealed;
  }
}

TEST_F(ReservationsTest, SeveralReservationsAtOnceShareARange) {
  const std::vector<std::string> keys = {"a", "b", "c"};
  std::vector<RecordReservation> to(3);
  Gate gate(first->loop);
  const auto ask = [&](size_t i) -> Task<void> {
    const auto reserved = co_await first->store->reserve(keys[i], 1000, 0);
    if (reserved) to[i] = *reserved;
  };
  for (size_t i = 0; i < 3; ++i) gate.spawn(ask(i));
  run_task(first->loop, gate.wait_empty());
  EXPECT_LT(std::max({to[0].offset, to[1].offset, to[2].offset}), kSegmentHeader + 3300U);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(writer->write(to[i], keys[i], large(keys[i][0], 1000)).ok());
  }
  EXPECT_EQ(confirm(*first, "c", to[2]), "done");  // in any order
  EXPECT_EQ(confirm(*first, "a", to[0]), "done");
  EXPECT_EQ(confirm(*first, "a", to[1]), "ended");  // of another key
  EXPECT_EQ(first->get("a"), large('a', 1000));
  EXPECT_EQ(first->get("b"), "(none)");
  EXPECT_EQ(first->get("c"), large('c', 1000));
  EXPECT_EQ(writer->get("c"), large('c', 1000));
}

TEST_F(ReservationsTest, AChangeOfTheKeyEndsIt) {
  const auto before = reserve(*first, "key", 3000);
  ASSERT_TRUE(first->put("key", "newer").ok());
  ASSERT_TRUE(writer->write(*before, "key", large('x')).ok());
  EXPECT_EQ(confirm(*first, "key", *before), "ended");
  EXPECT_EQ(first->get("key"), "newer");
  const auto removed = reserve(*first, "key", 3000);
  ASSERT_TRUE(first->remove("key").ok());
  EXPECT_EQ(confirm(*first, "key", *removed), "ended");
  EXPECT_EQ(first->get("key"), "(none)");
  const auto one = reserve(*first, "key", 100);
  const auto two = reserve(*first, "key", 100);
  ASSERT_TRUE(writer->write(*two, "key", large('2', 100)).ok());
  EXPECT_EQ(confirm(*first, "key", *two), "done");
  EXPECT_EQ(confirm(*first, "key", *one), "ended");
  EXPECT_EQ(first->get("key"), large('2', 100));
  const auto cleared = reserve(*first, "key", 100);
  ASSERT_TRUE(run_task(first->loop, first->store->clear(0)).ok());
  EXPECT_EQ(confirm(*first, "key", *cleared), "ended");
}

TEST_F(ReservationsTest, AnOwnerOfPartsIsNotReplaced) {
  const auto to = reserve(*first, "key", 100);
  Change head = put("key", "head");
  head.role = RecordRole::owner;
  ASSERT_TRUE(first->apply({head}).ok());
  const auto later = reserve(*first, "key", 100);
  ASSERT_TRUE(to.ok() && later.ok());
  EXPECT_EQ(confirm(*first, "key", *to), "ended");
  EXPECT_EQ(confirm(*first, "key", *later), "ended");
  EXPECT_EQ(first->get("key"), "head");
}

TEST_F(ReservationsTest, AFullSegmentEndsIt) {
  const auto to = reserve(*first, "key", 3000);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(first->put(std::to_string(i), large('s', 1000)).ok());
  ASSERT_TRUE(writer->write(*to, "key", large('x')).ok());
  EXPECT_EQ(confirm(*first, "key", *to), "ended");
  EXPECT_EQ(first->get("key"), "(none)");
  EXPECT_EQ(reserve(*first, "key", 16 * kKiB).error().code, Errc::usage);  // the whole segment
  EXPECT_EQ(reserve(*first, "key", 65 * kKiB).error().code, Errc::usage);
  put_large(*first, "key", large('y', 15 * kKiB));
  EXPECT_EQ(first->get("key"), large('y', 15 * kKiB));
}

TEST_F(ReservationsTest, ExpiryIsThatOfTheReservation) {
  const int64_t now_ms = first->loop.clock().wall_ns() / kMillisecond;
  const auto to = reserve(*first, "key", 100, now_ms + 1000);
  ASSERT_TRUE(writer->write(*to, "key", large('e', 100)).ok());
  ASSERT_EQ(confirm(*first, "key", *to), "done");
  EXPECT_EQ(first->store->find("key")->value().expires_ms, now_ms + 1000);
  EXPECT_EQ(writer->get("key"), large('e', 100));
  first->sleep(2 * kSecond);
  EXPECT_EQ(first->get("key"), "(none)");
}

// The next owner knows nothing of reservations, and the former one acknowledges nothing.
TEST_F(ReservationsTest, ALostOwnerConfirmsNothing) {
  ASSERT_TRUE(first->put("key", "old").ok());
  const auto to = reserve(*first, "key", 3000);
  ASSERT_TRUE(writer->write(*to, "key", large('x')).ok());
  Options options = small_options();
  options.address = "second";
  KvProcess second(world, disk, 2);
  ASSERT_TRUE(second.open(options).ok());
  second.sleep(2 * kSecond);
  first->loop.set_paused(true);
  wait_until_owned(second);
  EXPECT_EQ(confirm(second, "key", *to), "ended");
  first->loop.set_paused(false);
  EXPECT_EQ(confirm(*first, "key", *to), "stale");
  EXPECT_EQ(reserve(*first, "key", 3000).error().code, Errc::stale);
  EXPECT_EQ(second.get("key"), "old");
  EXPECT_EQ(writer->get("key"), "old");
  put_large(second, "key", large('n'));
  // A late write to the former range changes nothing.
  ASSERT_TRUE(writer->write(*to, "key", large('z')).ok());
  EXPECT_EQ(second.get("key"), large('n'));
  EXPECT_EQ(writer->get("key"), large('n'));
}

// Small keys make room for a large value, which replaces the value of its own key.
TEST_F(ReservationsTest, OtherKeysAreEvictedForIt) {
  Options options = small_options();
  options.segment_bytes = 64 * kKiB;
  options.max_bytes = 8 * kKiB;
  reopen(options);
  ASSERT_TRUE(first->put("key", "old").ok());
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(first->put(std::to_string(i), large('s', 90)).ok());
  for (int i = 0; i < 5; ++i) {
    put_large(*first, "key", large(static_cast<char>('a' + i), 7000));
    EXPECT_EQ(first->get("key"), large(static_cast<char>('a' + i), 7000));
    EXPECT_LE(first->store->counts(0).live_bytes, options.max_bytes);
  }
  const auto counts = first->store->counts(0);
  reopen(options);
  EXPECT_EQ(first->get("key"), large('e', 7000));
  EXPECT_EQ(first->store->counts(0).keys, counts.keys);
  EXPECT_EQ(first->store->counts(0).live_bytes, counts.live_bytes);
}

// What a writer that died has left is freed, and what was confirmed is copied.
TEST_F(ReservationsTest, CompactionCopiesWhatIsConfirmed) {
  put_large(*first, "keep", large('k'));
  for (int i = 0; i < 30; ++i) {
    const auto left = reserve(*first, "left", 3000);
    ASSERT_TRUE(left.ok());
    put_large(*first, "turn", large(static_cast<char>('a' + i % 26)));
  }
  const uint64_t before = first->store->counts(0).file_bytes;
  first->sleep(30 * kSecond);
  EXPECT_LT(first->store->counts(0).file_bytes, before / 3);
  EXPECT_EQ(first->get("keep"), large('k'));
  EXPECT_EQ(first->get("turn"), large('d'));
  EXPECT_EQ(writer->get("keep"), large('k'));
  reopen(small_options());
  EXPECT_EQ(first->get("keep"), large('k'));
  EXPECT_EQ(first->store->counts(0).keys, 2U);
}

// A damaged record of a confirmed value: found, the former value is there again, nothing else goes.
TEST_F(ReservationsTest, DamageIsFound) {
  ASSERT_TRUE(first->put("key", "old").ok());
  const auto to = reserve(*first, "key", 3000);
  ASSERT_EQ(confirm(*first, "key", *to), "done");  // nobody has written it
  ASSERT_TRUE(first->put("other", "value").ok());
  EXPECT_EQ(first->get("key"), "(corrupt)");
  reopen(small_options());
  EXPECT_EQ(first->get("key"), "old");
  EXPECT_EQ(first->get("other"), "value");
  EXPECT_EQ(first->store->damage().size(), 1U);
}

TEST_F(ReservationsTest, BuffersTakeValuesOfAnySize) {
  Options options = small_options();
  options.segment_bytes = 16 * kMiB;
  options.max_value_bytes = 8 * kMiB;
  reopen(options);
  WriterProcess buffered(world, disk, 2);
  for (const size_t bytes : {size_t{0}, size_t{1}, 2 * kMiB - 35, 2 * kMiB, 4 * kMiB - 1}) {
    const std::string value = large(static_cast<char>('a' + bytes % 26), bytes);
    const auto to = reserve(*first, "key", bytes);
    ASSERT_TRUE(to.ok());
    ASSERT_TRUE(buffered.write(*to, "key", value).ok());
    ASSERT_EQ(confirm(*first, "key", *to), "done");
    EXPECT_TRUE(first->get("key") == value) << bytes;
    EXPECT_TRUE(buffered.get("key") == value) << bytes;
  }
}

// Stopped at each change of the disk, by a power loss or a kill, in a durable store.
TEST(ReservationsCrashTest, MayStopAnywhere) {
  Options options = small_options();
  options.durable = true;
  uint64_t mutations = UINT64_MAX;
  for (uint64_t stop = 0; stop < mutations; ++stop) {
    SCOPED_TRACE(testing::Message() << "stopped at " << stop);
    KvWorld w;
    ASSERT_TRUE(w.first->open(options).ok());
    ASSERT_TRUE(w.first->put("key", "old").ok());
    WriterProcess writer(w.world, w.disk);
    w.disk.crash_at(w.disk.mutations() + stop);
    Store& store = *w.first->store;
    std::set<std::string> possible = {"old"};
    for (const char value : {'a', 'b'}) {
      const auto to = run_task(w.first->loop, store.reserve("key", 3000, 0));
      if (!to || !writer.write(*to, "key", large(value)).ok()) break;
      possible.insert(large(value));
      const auto confirmed = run_task(w.first->loop, store.confirm("key", *to));
      if (!confirmed) break;
      ASSERT_TRUE(confirmed->done);
      possible = {large(value)};
    }
    const bool other = w.first->put("other", "value").ok();
    if (!w.disk.crashed()) mutations = stop;
    w.disk.crash();
    w.first->kill();
    stop % 2 == 0 ? w.disk.power_loss() : w.disk.kill();
    w.disk.crash_at(UINT64_MAX);
    w.reopen(options);
    for (const bool again : {false, true}) {
      if (again) w.reopen(options);
      EXPECT_TRUE(possible.contains(w.first->get("key"))) << w.first->get("key").substr(0, 20);
      EXPECT_EQ(WriterProcess(w.world, w.disk).get("key"), w.first->get("key"));
      if (other) {
        EXPECT_EQ(w.first->get("other"), "value");
      }
    }
    EXPECT_TRUE(w.first->put("key", "end").ok());
    EXPECT_EQ(w.first->get("key"), "end");
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(mutations, 6U);
}

// Random changes of both kinds against what was acknowledged, with failing disks and crashes.
class MixedRun {
 public:
  MixedRun(uint64_t seed, bool durable) : dice_(seed), w_(seed) {
    options_ = small_options();
    options_.durable = durable;
    options_.segment_bytes = 8 * kKiB;
    options_.heartbeat_ns = 20 * kMillisecond;
    options_.lease_ns = 200 * kMillisecond;
  }
  void run() {
    for (int life = 0; life < 4 && !testing::Test::HasFailure(); ++life) {
      const auto opened = w_.first->open(options_);
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      KvWorld::wait_until_owned(*w_.first);
      for (Key& key : keys_) check(key);
      if (dice_.below(3) == 0) w_.disk.crash_at(w_.disk.mutations() + dice_.below(300));
      if (dice_.below(4) == 0) w_.disk.set_fault(sim::SimOp::write, 0.05, EIO);
      auto made = ReservationWriter::make(w_.disk, w_.first->loop, kFolder, {});
      ASSERT_TRUE(made.ok());
      writer_ = std::move(*made);
      run_task(w_.first->loop, change_all());
      end_life();
    }
  }

 private:
  struct Key {
    std::string name;
    std::set<std::string> possible = {"(none)"};
  };
  Task<void> change_all() {
    Gate gate(w_.first->loop);
    for (Key& key : keys_) gate.spawn(change_some(key));
    co_await gate.wait_empty();
  }
  Task<void> change_some(Key& key) {
    for (int i = 0; i < 30 && !w_.disk.crashed(); ++i) {
      const std::string value = fmt::format("{}-{:0{}}", ++last_, 0, 1 + dice_.below(900));
      const uint64_t kind = dice_.below(4);
      key.possible.insert(kind == 0 ? "(none)" : value);
      bool done = false;
      if (kind < 2) {
        std::vector<Change> changes{kind == 0 ? removal(key.name) : put(key.name, value)};
        const auto applied = co_await w_.first->store->apply(std::move(changes));
        done = applied.ok();
      } else {
        done = co_await write_large(key, value);
      }
      // All are of one partition: what has failed before cannot happen any more.
      if (done) key.possible = {kind == 0 ? "(none)" : value};
      (void)co_await sleep_for(w_.first->loop, static_cast<int64_t>(dice_.below(kMillisecond)));
    }
  }
  Task<bool> write_large(Key& key, const std::string& value) {
    Store& store = *w_.first->store;
    const auto to = co_await store.reserve(key.name, value.size(), 0);
    if (!to || dice_.below(8) == 0) co_return false;
    const auto wrote = co_await writer_->write(0, *to, key.name, value);
    if (!wrote) co_return false;
    const auto synced = co_await writer_->sync(0, *to);
    if (!synced) co_return false;
    const auto confirmed = co_await store.confirm(key.name, *to);
    co_return confirmed.ok() && confirmed->done;
  }
  void check(Key& key) {
    const std::string got = w_.first->get(key.name);
    EXPECT_TRUE(key.possible.contains(got)) << key.name << " is " << got.substr(0, 20);
    key.possible = {got};
  }
  void end_life() {
    w_.disk.set_fault(sim::SimOp::write, 0, 0);
    writer_.reset();
    if (!w_.disk.crashed()) w_.disk.crash_at(UINT64_MAX);
    if (!w_.disk.crashed() && dice_.below(3) == 0) return w_.first->close();
    w_.disk.crash();
    w_.first->kill();
    options_.durable&& dice_.below(2) == 0 ? w_.disk.power_loss() : w_.disk.kill();
    w_.disk.crash_at(UINT64_MAX);
  }

  SeededRng dice_;
  KvWorld w_;
  Options options_;
  std::unique_ptr<ReservationWriter> writer_;
  uint64_t last_ = 0;
  std::vector<Key> keys_ = {{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}};
};

TEST(ReservationsCrashTest, AcknowledgedValuesStay) {
  for (uint64_t seed = 1; seed <= seeds(100); ++seed) {
    for (const bool durable : {false, true}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << (durable ? " durable" : ""));
      MixedRun run(seed, durable);
      run.run();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ff::kvstore

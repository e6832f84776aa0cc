// Readers beside owners: what they see of changes, compaction, takeovers, failed and torn writes.
#include "storage/kvstore/store_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/kvstore/kv_world.h"

namespace ff::kvstore {
namespace {

// One process with a reader.
class ReaderProcess {
 public:
  ReaderProcess(sim::SimWorld& world, io::Disk& disk, int64_t max_age_ns = 0, size_t buffers = 0)
      : loop(world), disk_(disk), options_{.max_age_ns = max_age_ns, .buffers = buffers} {}

  void open() {
    auto opened = StoreReader::open(disk_, loop, kFolder, options_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    reader = std::move(*opened);
  }
  Result<void> refresh() { return run_task(loop, reader->refresh()); }
  std::optional<KeyInfo> find(std::string_view key) {
    const auto infos = run_task(loop, reader->find_many(std::span(&key, 1)));
    EXPECT_TRUE(infos.ok()) << infos.error().message;
    return infos ? infos->front() : std::nullopt;
  }
  // The values, each read into `room` bytes; "(none)", "(code)" after an error, "(size)" of one
  // that is too large.
  std::vector<std::string> get_all(const std::vector<std::string>& keys, size_t room = 4 * kKiB) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    std::vector<std::string> memory(keys.size(), std::string(room, '?'));
    std::vector<ByteSpan> places;
    for (std::string& one : memory) places.push_back(writable(one));
    const auto read = run_task(loop, reader->read_many(views, places));
    if (!read) return {"(" + std::string(errc_name(read.error().code)) + ")"};
    std::vector<std::string> values;
    for (size_t i = 0; i < keys.size(); ++i) values.push_back(value_of((*read)[i], memory[i]));
    return values;
  }
  std::string get(const std::string& key, size_t room = 4 * kKiB) {
    return get_all({key}, room).at(0);
  }

  sim::SimLoop loop;
  std::unique_ptr<StoreReader> reader;

 private:
  static std::string value_of(const Result<std::optional<KeyInfo>>& info, std::string& memory) {
    if (!info) return "(" + std::string(errc_name(info.error().code)) + ")";
    if (!*info) return "(none)";
    if ((*info)->value_bytes > memory.size()) return fmt::format("({})", (*info)->value_bytes);
    return memory.substr(0, (*info)->value_bytes);
  }

  io::Disk& disk_;
  const StoreReader::Options options_;
};

class ReaderTest : public testing::Test, public KvWorld {
 protected:
  void start(Options options = small_options()) {
    ASSERT_TRUE(first->open(std::move(options)).ok());
    me.open();
  }
  // Appends bytes to the segment, as an owner does.
  void append(const std::string& path, std::string_view bytes, uint64_t back = 0) {
    std::string before = *io::read_file(disk, path, kMiB);
    const uint64_t end = padded(before.find_last_not_of('\0') + 1);
    const auto file = disk.open(path, {.access = io::AccessMode::write});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(as_bytes(bytes), end - back).ok());
  }

  ReaderProcess me{world, disk};
};

TEST_F(ReaderTest, SeesEveryAcknowledgedChange) {
  start();
  EXPECT_EQ(me.get("k"), "(none)");
  for (int i = 0; i < 300; ++i) {  // several segments
    ASSERT_TRUE(first->put("k", std::to_string(i)).ok());
    ASSERT_TRUE(first->put(fmt::format("k{}", i % 50), std::string(300, 'x')).ok());
    EXPECT_EQ(me.get("k"), std::to_string(i));
  }
  EXPECT_EQ(me.find("k")->version, first->store->find("k").value()->version);
  ASSERT_TRUE(first->apply({removal("k"), put("{k}2", "two")}).ok());
  EXPECT_EQ(me.get_all({"k", "{k}2", "k49"}),
            (std::vector<std::string>{"(none)", "two", std::string(300, 'x')}));
  EXPECT_EQ(me.reader->counts().keys, first->store->counts(0).keys);
}

TEST_F(ReaderTest, AViewMayBeAsOldAsAllowed) {
  ASSERT_TRUE(first->open(small_options()).ok());
  ReaderProcess old(world, disk, kSecond);
  old.open();
  EXPECT_EQ(old.get("k"), "(none)");
  ASSERT_TRUE(first->put("k", "1").ok());
  EXPECT_EQ(old.get("k"), "(none)");
  ASSERT_TRUE(old.refresh().ok());
  EXPECT_EQ(old.get("k"), "1");
  ASSERT_TRUE(first->put("k", "2").ok());
  EXPECT_EQ(old.get("k"), "1");
  world.run_for(2 * kSecond);
  EXPECT_EQ(old.get("k"), "2");
  ASSERT_TRUE(first->put("k", "3").ok());
  old.reader->outdate(0);
  EXPECT_EQ(old.get("k"), "3");
}

TEST_F(ReaderTest, ValuesOfAnySizeAndPlacesThatAreTooSmall) {
  Options options = small_options();
  options.max_value_bytes = kMiB;
  start(options);
  std::vector<std::string> keys, values;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1000}, 64 * kKiB - 1, 64 * kKiB, 300 * kKiB}) {
    keys.push_back(fmt::format("{}", size));
    values.emplace_back(size, static_cast<char>('a' + keys.size()));
    ASSERT_TRUE(first->put(keys.back(), values.back()).ok());
  }
  EXPECT_EQ(me.get_all(keys, kMiB), values);
  ReaderProcess buffered(world, disk, 0, 1);  // all large values through one buffer
  buffered.open();
  EXPECT_EQ(buffered.get_all(keys, kMiB), values);
  EXPECT_EQ(me.get("1000", 999), "(1000)");
  EXPECT_EQ(me.get("0", 0), "");
  for (const std::string& path : files(0, "seg-")) {
    // One bit in the middle of what the file has.
    const std::string bytes = *io::read_file(disk, path, kMiB);
    ASSERT_TRUE(disk.flip_bit(path, bytes.find_last_not_of('\0') * 4).ok());
  }
  EXPECT_EQ(me.get("307200", kMiB), "(corrupt)");
  EXPECT_EQ(buffered.get("307200", kMiB), "(corrupt)");
}

TEST_F(ReaderTest, TimesOfExpiry) {
  start();
  const int64_t now_ms = world.clock().wall_ns() / kMillisecond;
  ASSERT_TRUE(first->put("k", "v", now_ms + 3000).ok());
  EXPECT_EQ(me.get("k"), "v");
  EXPECT_EQ(me.find("k")->expires_ms, now_ms + 3000);
  ASSERT_TRUE(first->apply({expiry("k", now_ms + 6000)}).ok());
  world.run_for(4 * kSecond);
  EXPECT_EQ(me.get("k"), "v");
  world.run_for(4 * kSecond);
  EXPECT_EQ(me.get("k"), "(none)");
}

TEST_F(ReaderTest, OwnersAreKeysAndPartsAreNot) {
  start();
  const std::string name = part_name(redis_slot("k"), "page");
  ASSERT_TRUE(first
                  ->apply({{.key = "k", .value = "head", .role = RecordRole::owner},
                           {.key = name, .value = "page", .role = RecordRole::part}})
                  .ok());
  EXPECT_EQ(me.find("k")->role, RecordRole::owner);
  EXPECT_EQ(me.get_all({"k", name}), (std::vector<std::string>{"head", "(none)"}));
  EXPECT_EQ(me.reader->counts().keys, 1U);
}

TEST_F(ReaderTest, NothingOfAClearedPartitionIsLeft) {
  start();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(first->put(fmt::format("{}", i % 10), std::string(500, 'x')).ok());
  }
  EXPECT_EQ(me.get("3"), std::string(500, 'x'));
  disk.set_fault(sim::SimOp::name, 0.3, EIO);  // some segments stay
  (void)run_task(first->loop, first->store->clear(0));
  disk.set_fault(sim::SimOp::name, 0, 0);
  ASSERT_TRUE(run_task(first->loop, first->store->clear(0)).ok());
  EXPECT_EQ(me.get("3"), "(none)");
  ASSERT_TRUE(first->put("3", "new").ok());
  EXPECT_EQ(me.get_all({"3", "4"}), (std::vector<std::string>{"new", "(none)"}));
}

TEST_F(ReaderTest, KnowsTheOwner) {
  start();
  EXPECT_EQ(*run_task(me.loop, me.reader->owner(0)), "first");
  first->close();
  EXPECT_EQ(*run_task(me.loop, me.reader->owner(0)), "");
  KvProcess second(world, disk, 2);
  Options options = small_options();
  options.address = "second";
  ASSERT_TRUE(second.open(options).ok());
  EXPECT_EQ(*run_task(me.loop, me.reader->owner(0)), "second");
}

TEST_F(ReaderTest, AFolderWithoutAStoreAndOneWithoutAnOwner) {
  const auto opened = StoreReader::open(disk, me.loop, kFolder, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, Errc::not_found);
  Options options = small_options();
  options.claim = false;
  start(options);
  EXPECT_EQ(me.get("k"), "(none)");
  EXPECT_EQ(*run_task(me.loop, me.reader->owner(0)), "");
}

// A write is not atomic: any part of it may be there first.
TEST_F(ReaderTest, AChangeCountsWhenAllOfItIsThere) {
  start();
  ASSERT_TRUE(first->put("a", "old").ok());
  first->loop.set_paused(true);
  const std::string path = files(0, "seg-").at(0);
  std::string group, rest, whole;
  append_record(group, {.more = true, .version = 1000, .key = "a", .value = "new"});
  append_record(rest, {.version = 1000, .key = "b", .value = "new"});
  append(path, group);
  EXPECT_EQ(me.get_all({"a", "b"}), (std::vector<std::string>{"old", "(none)"}));
  append(path, rest);
  EXPECT_EQ(me.get_all({"a", "b"}), (std::vector<std::string>{"new", "new"}));

  // The value of the first record is there last.
  group.clear();
  rest.clear();
  append_record(group, {.version = 1001, .key = "a", .value = "newer..."});
  append_record(rest, {.version = 1002, .key = "b", .value = "newer"});
  const std::string_view header = std::string_view(group).substr(0, kRecordHeader + 1);
  append(path, std::string(header) + std::string(group.size() - header.size(), '?') + rest);
  EXPECT_EQ(me.get_all({"a", "b"}), (std::vector<std::string>{"new", "newer"}));
  append(path, group + rest, group.size() + rest.size());
  EXPECT_EQ(me.get_all({"a", "b"}), (std::vector<std::string>{"newer...", "newer"}));
}

// What a failed write has left may be seen until the next change, and not any more after it.
TEST_F(ReaderTest, AFailedWriteDisappears) {
  for (const bool compacted : {false, true}) {
    KvWorld w(compacted ? 7 : 8);
    Options options = small_options();
    options.durable = true;
    ASSERT_TRUE(w.first->open(options).ok());
    ReaderProcess reader(w.world, w.disk);
    reader.open();
    ASSERT_TRUE(w.first->put("a", "before").ok());
    w.disk.set_fault(sim::SimOp::sync, 1, EIO);
    EXPECT_FALSE(w.first->put("a", "failed").ok());
    w.disk.set_fault(sim::SimOp::sync, 0, 0);
    const std::string seen = reader.get("a");
    EXPECT_TRUE(seen == "before" || seen == "failed") << seen;
    ASSERT_TRUE(w.first->put("b", "next").ok());
    if (compacted) w.first->sleep(10 * kSecond);  // the segment of the failed write is gone
    EXPECT_EQ(reader.get_all({"a", "b"}), (std::vector<std::string>{"before", "next"}));
  }
}

// The bytes are in the file, and the owner that wrote them has lost the partition meanwhile.
TEST_F(ReaderTest, WhatAFormerOwnerCouldNotAcknowledgeDisappears) {
  for (const bool compacted : {false, true}) {
    KvWorld w(compacted ? 7 : 8);
    ASSERT_TRUE(w.first->open(small_options()).ok());
    ReaderProcess reader(w.world, w.disk);
    reader.open();
    ASSERT_TRUE(w.first->put("a", "before").ok());
    const std::string path = w.files(0, "seg-").at(0);
    w.first->kill();
    KvProcess second(w.world, w.disk, 2);
    ASSERT_TRUE(second.open(small_options()).ok());
    std::string late;
    append_record(late, {.version = 1000, .key = "a", .value = "late"});
    std::string before = *io::read_file(w.disk, path, kMiB);
    {
      const auto file = w.disk.open(path, {.access = io::AccessMode::write});
      const uint64_t end = padded(before.find_last_not_of('\0') + 1);
      KvWorld::wait_until_owned(second);  // it has read the segment
      ASSERT_TRUE((*file)->write_at(as_bytes(late), end).ok());
    }
    EXPECT_EQ(reader.get("a"), "before");
    if (compacted) {
      ASSERT_TRUE(second.put("a", "2").ok());
      second.sleep(10 * kSecond);
      EXPECT_FALSE(w.disk.info(path).ok());
      EXPECT_EQ(reader.get("a"), "2");
    }
  }
}

// A reader that has seen what did not count, and comes back when its segment is gone.
TEST_F(ReaderTest, ASegmentThatIsGoneLeavesNothingThatDoesNotCount) {
  start();
  ASSERT_TRUE(first->put("a", "before").ok());
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(first->put(fmt::format("{}", i % 7), std::string(500, 'x')).ok());
  }
  std::string late;
  append_record(late, {.version = 1000, .key = "a", .value = "late"});
  first->kill();
  KvProcess second(world, disk, 2);
  const std::string last = files(0, "seg-").back();
  // The new owner cannot read that far: the disk lies to it as a slow write of the former one
  // would.
  std::string before = *io::read_file(disk, last, kMiB);
  append(last, late);
  EXPECT_EQ(me.get("a"), "late");
  {
    const auto file = disk.open(last, {.access = io::AccessMode::write});
    ASSERT_TRUE((*file)->write_at(as_bytes(before), 0).ok());
  }
  ASSERT_TRUE(second.open(small_options()).ok());
  KvWorld::wait_until_owned(second);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(second.put(fmt::format("{}", i % 7), std::string(500, 'y')).ok());
  }
  second.sleep(20 * kSecond);
  EXPECT_FALSE(disk.info(last).ok());
  EXPECT_EQ(me.get_all({"a", "3"}), (std::vector<std::string>{"before", std::string(500, 'y')}));
}

// In a cluster, the bytes of a removed file go although a reader has it open.
TEST_F(ReaderTest, FindsARecordThatCompactionHasMoved) {
  ASSERT_TRUE(first->open(small_options()).ok());
  ASSERT_TRUE(first->put("keep", "value").ok());
  ReaderProcess old(world, disk, 3600 * kSecond);
  old.open();
  EXPECT_EQ(old.get("keep"), "value");
  const std::string path = files(0, "seg-").at(0);
  const auto file = disk.open(path, {.access = io::AccessMode::write});
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(first->put("busy", std::string(500, 'x')).ok());
  first->sleep(10 * kSecond);
  ASSERT_FALSE(disk.info(path).ok());
  ASSERT_TRUE((*file)->write_at(as_bytes(std::string(16 * kKiB, '\0')), 0).ok());
  EXPECT_FALSE(old.find("busy").has_value()) << "the view is new, so this tests nothing";
  EXPECT_EQ(old.get("keep"), "value");
}

Task<void> refresh_forever(ReaderProcess& reader, const bool& ended) {
  while (!ended) {
    const auto refreshed = co_await reader.reader->refresh();
    EXPECT_TRUE(refreshed.ok()) << refreshed.error().message;
    if (!co_await sleep_for(reader.loop, 100 * kMicrosecond)) co_return;
  }
}

// Compaction goes on while a reader looks; the times of the disk are random.
TEST(ReaderCompactionTest, EveryStepOfCompaction) {
  for (uint64_t seed = 1; seed <= seeds(12); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    KvWorld w(seed);
    Options options = small_options();
    options.segment_bytes = 2 * kKiB;
    options.heartbeat_ns = 20 * kMillisecond;  // maintenance runs often
    ASSERT_TRUE(w.first->open(options).ok());
    // Every second time, others of its process make new views, and no call waits for one.
    ReaderProcess reader(w.world, w.disk, seed % 2 == 0 ? 0 : 3600 * kSecond);
    reader.open();
    std::vector<std::string> keys, values;
    for (int i = 0; i < 60; ++i) {
      keys.push_back(std::to_string(i));
      values.push_back(i % 4 == 1 ? "(none)" : std::string(100, static_cast<char>('a' + i % 26)));
      // Most of it is not in use any more a little later.
      ASSERT_TRUE(w.first->put(keys[i], i % 4 == 0 ? values[i] : "former value").ok());
      ASSERT_TRUE(w.first->put("busy", std::string(100, 'x')).ok());
    }
    for (int i = 0; i < 60; ++i) {
      if (i % 4 == 0) continue;
      const auto applied = i % 4 == 1 ? w.first->remove(keys[i]) : w.first->put(keys[i], values[i]);
      ASSERT_TRUE(applied.ok()) << i;
    }
    Gate gate(w.first->loop);
    gate.spawn([](KvProcess& owner) -> Task<void> {
      for (int i = 0; i < 400; ++i) {
        std::vector<Change> changes{put("busy", std::string(150, 'x'))};
        (void)co_await owner.store->apply(std::move(changes));
        if (!co_await sleep_for(owner.loop, kMillisecond)) co_return;
      }
    }(*w.first));
    ASSERT_TRUE(reader.refresh().ok());
    Gate refreshing(reader.loop);
    bool ended = false;
    if (seed % 2 != 0) refreshing.spawn(refresh_forever(reader, ended));
    for (int look = 0; look < 150 && !testing::Test::HasFailure(); ++look) {
      EXPECT_EQ(reader.get_all(keys), values) << look;
    }
    run_task(w.first->loop, gate.wait_empty());
    w.first->sleep(kSecond);
    ended = true;
    run_task(reader.loop, refreshing.wait_empty());
    ASSERT_TRUE(reader.refresh().ok());
    EXPECT_GT(w.first->metrics.counter("ff_kvstore_compacted_total", "").value(), 3U);
    EXPECT_EQ(reader.get_all(keys), values);
    EXPECT_EQ(reader.reader->counts().keys, w.first->store->counts(0).keys);
    if (testing::Test::HasFailure()) return;
  }
}

// Two processes fight for a partition, with pauses, slow and failing disks; a reader must never see
// less than what was acknowledged when it began to look.
class WatchedOwners {
 public:
  WatchedOwners(uint64_t seed, bool durable) : rng_(seed), w_(seed), durable_(durable) {}

  void run() {
    KvProcess second(w_.world, w_.disk, rng_.next());
    for (KvProcess* const process : {w_.first.get(), &second}) {
      Options options = small_options();
      options.durable = durable_;
      options.segment_bytes = 4 * kKiB;
      ASSERT_TRUE(process->open(options).ok());
    }
    for (int i = 0; i < 8; ++i) {
      const std::string key = fmt::format("keep{}", i);
      ASSERT_TRUE(w_.first->put(key, key).ok());
      ASSERT_TRUE(w_.first->put(fmt::format("gone{}", i), "x").ok());
      ASSERT_TRUE(w_.first->remove(fmt::format("gone{}", i)).ok());
    }
    ReaderProcess reader(w_.world, w_.disk);
    reader.open();
    Gate one(w_.first->loop), two(second.loop), watching(reader.loop);
    one.spawn(count_up(*w_.first));
    two.spawn(count_up(second));
    watching.spawn(watch(reader));
    for (int round = 0; round < 12; ++round) disturb(second);
    w_.disk.set_slow(0);
    w_.first->loop.set_paused(false);
    second.loop.set_paused(false);
    w_.world.run_for(20 * kSecond);
    ended_ = true;
    w_.world.run_for(kSecond);
    EXPECT_EQ(std::stoull(reader.get("n")), highest_acknowledged_);
  }

  uint64_t looks = 0, acknowledged = 0, not_acknowledged_seen = 0;

 private:
  static uint64_t number(std::string_view text) {
    uint64_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }

  // The counter of both; each change also has the same number in another key, with it.
  Task<void> count_up(KvProcess& process) {
    while (!ended_) {
      const auto entry = co_await process.store->get("n");
      const bool fits = entry && (!*entry || number((*entry)->value) >= highest_acknowledged_);
      if (fits) {
        const uint64_t next = ++highest_tried_;
        const std::string value = fmt::format("{}{:300}", next, "");
        std::vector<Change> changes{put("n", value), put("{n}2", value)};
        std::vector<Precondition> guards{{.key = "n", .version = *entry ? (*entry)->version : 0}};
        const auto applied = co_await process.store->apply(std::move(changes), std::move(guards));
        if (applied && applied->done) {
          highest_acknowledged_ = std::max(highest_acknowledged_, next);
          ++acknowledged;
        }
      }
      if (!co_await sleep_for(process.loop, 50 * kMillisecond)) co_return;
    }
  }

  Task<void> watch(ReaderProcess& reader) {
    std::vector<std::string> names{"n", "{n}2"};
    for (int i = 0; i < 8; ++i) names.push_back(fmt::format("keep{}", i));
    for (int i = 0; i < 8; ++i) names.push_back(fmt::format("gone{}", i));
    const std::vector<std::string_view> keys(names.begin(), names.end());
    while (!ended_) {
      const uint64_t least = highest_acknowledged_;
      std::vector<std::string> memory(keys.size(), std::string(1000, '?'));
      std::vector<ByteSpan> places;
      for (std::string& one : memory) places.push_back(writable(one));
      const auto infos = co_await reader.reader->find_many(keys);
      EXPECT_TRUE(infos.ok()) << infos.error().message;
      if (!infos) co_return;
      EXPECT_EQ((*infos)[0].has_value(), (*infos)[1].has_value());
      if ((*infos)[0]) {
        EXPECT_EQ((*infos)[0]->version, (*infos)[1]->version) << "half of a change";
      }
      const auto read = co_await reader.reader->read_many(keys, places);
      EXPECT_TRUE(read.ok()) << read.error().message;
      if (!read) co_return;
      check(*read, memory, least);
      if (!co_await sleep_for(reader.loop, 70 * kMillisecond)) co_return;
    }
  }

  void check(const StoreReader::Reads& read, const std::vector<std::string>& memory,
             uint64_t least) {
    for (const auto& one : read) EXPECT_TRUE(one.ok()) << one.error().message;
    if (testing::Test::HasFailure()) return;
    EXPECT_GE(number(memory[0]), least) << "an acknowledged change is missing";
    not_acknowledged_seen += number(memory[0]) > highest_acknowledged_;
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(memory[2 + i].substr(0, 5), fmt::format("keep{}", i));
      EXPECT_FALSE((*read[10 + i]).has_value());
    }
    ++looks;
  }

  void disturb(KvProcess& second) {
    w_.first->loop.set_paused(rng_.below(3) == 0);
    second.loop.set_paused(rng_.below(3) == 0);
    w_.disk.set_slow(rng_.below(3) == 0 ? static_cast<int64_t>(rng_.below(kSecond)) : 0);
    const sim::SimOp failing = durable_ ? sim::SimOp::sync : sim::SimOp::write;
    if (rng_.below(4) == 0) w_.disk.set_fault(failing, 0.2, EIO);
    w_.world.run_for(static_cast<int64_t>(rng_.below(12 * kSecond)));
    w_.disk.set_fault(failing, 0, 0);
  }

  SeededRng rng_;
  KvWorld w_;
  const bool durable_;
  uint64_t highest_tried_ = 0;
  uint64_t highest_acknowledged_ = 0;
  bool ended_ = false;
};

TEST(ReaderTakeoverTest, SeesWhatWasAcknowledgedWhoeverOwnsIt) {
  uint64_t looks = 0, acknowledged = 0;
  for (uint64_t seed = 1; seed <= seeds(40); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    WatchedOwners owners(seed, seed % 2 == 0);
    owners.run();
    if (testing::Test::HasFailure()) break;
    looks += owners.looks;
    acknowledged += owners.acknowledged;
  }
  EXPECT_GT(looks, 250 * seeds(40));
  EXPECT_GT(acknowledged, 250 * seeds(40));
}

}  // namespace
}  // namespace ff::kvstore

// One process and its store: what calls do, what stays after it is closed or killed, what a full or
// failing disk does, and what a damaged file does.
#include "storage/kvstore/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "storage/kvstore/kv_world.h"
#include "storage/kvstore/record.h"

namespace ff::kvstore {
namespace {

constexpr int64_t kWallMs = sim::SimClock::kStartNs / kMillisecond;

class StoreTest : public testing::Test, public KvWorld {
 protected:
  void SetUp() override { ASSERT_TRUE(first->open(small_options()).ok()); }
};

TEST_F(StoreTest, KeysKeepTheirLastValue) {
  EXPECT_EQ(first->get("a"), "(none)");
  const auto one = first->put("a", "1");
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->done);
  const auto two = first->put("a", "2");
  ASSERT_TRUE(two.ok());
  EXPECT_GT(two->version, one->version);
  EXPECT_EQ(first->get("a"), "2");
  const auto info = first->store->find("a");
  ASSERT_TRUE(info.ok() && *info);
  EXPECT_EQ((*info)->version, two->version);
  EXPECT_EQ((*info)->value_bytes, 1U);
  EXPECT_TRUE(first->remove("a").ok());
  EXPECT_TRUE(first->remove("a").ok());
  EXPECT_EQ(first->get("a"), "(none)");
  EXPECT_EQ(first->store->counts(0).keys, 0U);
  EXPECT_TRUE(first->put("", std::string("\0x", 2)).ok());
  EXPECT_EQ(first->get(""), std::string("\0x", 2));
}

TEST_F(StoreTest, ChangesOfOneCallAreTogetherAndTheLastOfAKeyCounts) {
  const int64_t later = kWallMs + 1000;
  ASSERT_TRUE(first
                  ->apply({put("a", "1"), put("b", "1"), put("a", "2"), removal("b"), put("c", "3"),
                           expiry("c", later), expiry("b", later)})
                  .ok());
  EXPECT_EQ(first->get("a"), "2");
  EXPECT_EQ(first->get("b"), "(none)");
  EXPECT_EQ((*first->read("c"))->expires_ms, later);
}

TEST_F(StoreTest, PreconditionsHoldOrNothingChanges) {
  const uint64_t version = first->put("a", "1")->version;
  EXPECT_FALSE(first->apply({put("a", "2"), put("b", "2")}, {{.key = "a"}})->done);
  EXPECT_FALSE(first->apply({put("a", "2")}, {{.key = "a", .version = version + 1}})->done);
  EXPECT_EQ(first->get("a"), "1");
  EXPECT_EQ(first->get("b"), "(none)");
  EXPECT_TRUE(
      first->apply({put("a", "2")}, {{.key = "a", .version = version}, {.key = "b"}})->done);
  EXPECT_EQ(first->get("a"), "2");
}

// Of calls that share a batch, the second one sees what the first one does.
TEST_F(StoreTest, PreconditionsOfOneBatchSeeEachOther) {
  int done = 0;
  const auto add = [&](std::string value) -> Task<void> {
    std::vector<Change> changes{put("a", std::move(value))};
    std::vector<Precondition> absent{{.key = "a"}};
    const auto applied = co_await first->store->apply(std::move(changes), std::move(absent));
    done += applied.ok() && applied->done ? 1 : 0;
  };
  const auto all = [&]() -> Task<void> {
    Gate gate(first->loop);
    for (int i = 0; i < 20; ++i) gate.spawn(add(std::to_string(i)));
    co_await gate.wait_empty();
  };
  run_task(first->loop, all());
  EXPECT_EQ(done, 1);
}

TEST_F(StoreTest, ManyChangesShareOneWrite) {
  const auto write = [&](int i) -> Task<void> {
    std::vector<Change> changes{put(std::to_string(i), "value")};
    const auto applied = co_await first->store->apply(std::move(changes));
    EXPECT_TRUE(applied.ok());
  };
  const auto all = [&]() -> Task<void> {
    Gate gate(first->loop);
    for (int i = 0; i < 100; ++i) gate.spawn(write(i));
    co_await gate.wait_empty();
  };
  run_task(first->loop, all());
  EXPECT_LE(first->metrics.counter("ff_kvstore_commits_total", "").value(), 3U);
  EXPECT_EQ(first->store->counts(0).keys, 100U);
  std::vector<std::string> keys{"7", "none", "99"};
  const auto got = run_task(first->loop, first->store->get_many(std::move(keys)));
  ASSERT_EQ(got.size(), 3U);
  EXPECT_EQ((*got[0])->value, "value");
  EXPECT_FALSE(got[1]->has_value());
  EXPECT_EQ((*got[2])->value, "value");
}

TEST_F(StoreTest, KeysExpire) {
  const int64_t soon = kWallMs + world.now_ns() / kMillisecond + 60'000;
  ASSERT_TRUE(first->put("a", "1", soon).ok());
  ASSERT_TRUE(first->put("b", "1").ok());
  ASSERT_TRUE(first->apply({expiry("b", soon), expiry("none", soon)}).ok());
  ASSERT_TRUE(first->put("c", "1", soon).ok());
  ASSERT_TRUE(first->apply({expiry("c", 0)}).ok());
  ASSERT_TRUE(first->put("d", "1").ok());
  ASSERT_TRUE(first->put("d", "2", kWallMs).ok());  // has passed: removes it
  EXPECT_EQ(first->get("b"), "1");
  EXPECT_EQ(first->get("d"), "(none)");
  EXPECT_EQ(first->get("none"), "(none)");
  reopen(small_options());
  EXPECT_EQ(first->get("a"), "1");
  first->sleep(61 * kSecond);
  EXPECT_EQ(first->get("a"), "(none)");
  EXPECT_EQ(first->get("b"), "(none)");
  EXPECT_EQ(first->get("c"), "1");
  EXPECT_EQ(first->store->counts(0).keys, 1U);  // maintenance has removed the others
}

TEST_F(StoreTest, RefusesWhatIsTooLarge) {
  const auto value = first->put("a", std::string(64 * kKiB + 1, 'x'));
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Errc::usage);
  EXPECT_EQ(first->put(std::string(kMaxKeyBytes + 1, 'x'), "").error().code, Errc::usage);
  const std::string key(kMaxKeyBytes, 'k');
  ASSERT_TRUE(first->put(key, std::string(64 * kKiB, 'x')).ok());  // more than a segment
  EXPECT_EQ(first->get(key), std::string(64 * kKiB, 'x'));
  reopen(small_options());
  EXPECT_EQ(first->get(key), std::string(64 * kKiB, 'x'));
}

TEST_F(StoreTest, ScansReturnEachKeyOnce) {
  std::set<std::string> keys;
  for (int i = 0; i < 300; ++i) {
    keys.insert(fmt::format("key{}", i));
    ASSERT_TRUE(first->put(fmt::format("key{}", i), "x").ok());
  }
  ASSERT_TRUE(first->remove("key7").ok());
  keys.erase("key7");
  for (const size_t page : {1, 7, 1000}) {
    const auto got = first->scan_all(0, page);
    EXPECT_EQ(got.size(), keys.size());
    EXPECT_EQ(std::set<std::string>(got.begin(), got.end()), keys);
  }
}

TEST_F(StoreTest, ClearedPartitionsStayEmpty) {
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(first->put(std::to_string(i), "value").ok());
  ASSERT_TRUE(run_task(first->loop, first->store->clear(0)).ok());
  EXPECT_EQ(first->get("7"), "(none)");
  EXPECT_EQ(first->store->counts(0).keys, 0U);
  EXPECT_TRUE(files(0, "seg-").empty());
  ASSERT_TRUE(first->put("8", "new").ok());
  reopen(small_options());
  EXPECT_EQ(first->get("7"), "(none)");
  EXPECT_EQ(first->get("8"), "new");
  EXPECT_EQ(first->store->counts(0).keys, 1U);
}

TEST_F(StoreTest, KeysOfOneCallAreOfOnePartition) {
  first->close();
  ASSERT_TRUE(io::remove_tree(disk, kFolder).ok());
  Options options = small_options();
  options.partitions = 7;
  ASSERT_TRUE(first->open(options).ok());
  EXPECT_EQ(first->apply({put("a", "1"), put("b", "1")}).error().code, Errc::usage);
  EXPECT_TRUE(first->apply({put("{t}a", "1"), put("{t}b", "1")}).ok());
  uint32_t next = 0;
  for (uint32_t p = 0; p < 7; ++p) {
    const auto slots = first->store->redis_slots(p);
    EXPECT_EQ(slots.first, next);
    next = slots.last + 1;
    EXPECT_EQ(slots.first % (kRedisSlots / kSlots), 0U);
  }
  EXPECT_EQ(next, kRedisSlots);
  for (int i = 0; i < 200; ++i) {
    const std::string key = std::to_string(i);
    const auto slots = first->store->redis_slots(first->store->partition_of(key));
    EXPECT_LE(slots.first, redis_slot(key));
    EXPECT_GE(slots.last, redis_slot(key));
  }
  // The number of partitions is that of the creation.
  first->close();
  options.partitions = 3;
  ASSERT_TRUE(first->open(options).ok());
  EXPECT_EQ(first->store->partitions(), 7U);
  EXPECT_EQ(first->get("{t}a"), "1");
}

TEST_F(StoreTest, ClosedStoresOpenAtOnce) {
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(first->put(std::to_string(i % 300), std::to_string(i)).ok());
  }
  first->close();
  ASSERT_TRUE(first->open(small_options()).ok());
  EXPECT_TRUE(first->store->owned(0));  // no wait for the end of a lease
  for (int i = 700; i < 1000; ++i)
    EXPECT_EQ(first->get(std::to_string(i % 300)), std::to_string(i));
}

// The least recently used keys go.
TEST_F(StoreTest, BoundedStoresEvict) {
  first->close();
  Options options = small_options();
  options.max_bytes = 64 * kKiB;
  ASSERT_TRUE(first->open(options).ok());
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(first->put(std::to_string(i), std::string(100, 'x')).ok());
    EXPECT_TRUE(i % 10 != 0 || first->get("0") != "(none)") << i;
    EXPECT_LE(first->store->counts(0).live_bytes, options.max_bytes);
  }
  EXPECT_GT(first->store->counts(0).keys, 200U);
  EXPECT_NE(first->get("2999"), "(none)");
  EXPECT_EQ(first->get("1"), "(none)");
  // Values that are replaced need no room.
  const uint64_t keys = first->store->counts(0).keys;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(first->put("2999", std::string(100, 'y')).ok());
  EXPECT_EQ(first->store->counts(0).keys, keys);
  first->sleep(30 * kSecond);
  EXPECT_LE(first->store->counts(0).file_bytes, 3 * options.max_bytes);
  EXPECT_EQ(first->put("z", std::string(65 * kKiB, 'x')).error().code, Errc::usage);
  reopen(options);
  EXPECT_EQ(first->get("1"), "(none)");
}

TEST_F(StoreTest, AFullDiskRefusesWritesAndLosesNothing) {
  ASSERT_TRUE(first->put("a", "1").ok());
  disk.set_capacity(40 * kKiB);
  std::set<std::string> written;
  Errc code = Errc::failed;
  for (int i = 0; i < 100 && code != Errc::disk_full; ++i) {
    const auto applied = first->put(std::to_string(i), std::string(1000, 'x'));
    if (applied) written.insert(std::to_string(i));
    if (!applied) code = applied.error().code;
  }
  EXPECT_EQ(code, Errc::disk_full);
  EXPECT_EQ(first->put("a", "2").error().code, Errc::disk_full);
  EXPECT_EQ(first->get("a"), "1");
  EXPECT_TRUE(first->store->owned(0));
  disk.set_capacity(kGiB);
  ASSERT_TRUE(first->put("a", "3").ok());
  ASSERT_TRUE(first->put("b", "3").ok());
  reopen(small_options());
  EXPECT_EQ(first->get("a"), "3");
  EXPECT_EQ(first->get("b"), "3");
  for (const std::string& key : written) EXPECT_EQ(first->get(key), std::string(1000, 'x'));
  EXPECT_EQ(first->store->counts(0).keys, written.size() + 2);
}

// What a failed write has left never appears after a later change.
TEST_F(StoreTest, AFailedWriteStaysWithoutEffect) {
  for (const bool durable : {false, true}) {
    Options options = small_options();
    options.durable = durable;
    reopen(options);
    for (int i = 0; i < 30; ++i) {
      ASSERT_TRUE(first->put("a", "good").ok());
      const sim::SimOp kind = durable && i % 2 == 0 ? sim::SimOp::sync : sim::SimOp::write;
      disk.set_fault(kind, 1, EIO);
      EXPECT_FALSE(first->apply({put("a", "bad"), put("b", "bad")}).ok());
      disk.set_fault(kind, 0, 0);
      EXPECT_EQ(first->get("a"), "good");
      EXPECT_EQ(first->get("b"), "(none)");
      ASSERT_TRUE(first->put("c", "good").ok());
      if (i % 3 == 0) first->sleep(3 * kSecond);  // maintenance
      if (i % 5 == 0) reopen(options);
      EXPECT_EQ(first->get("a"), "good") << i;
      EXPECT_EQ(first->get("b"), "(none)") << i;
      EXPECT_EQ(first->get("c"), "good") << i;
    }
  }
}

// Everything that a killed process leaves of its last segment, cut at each byte.
TEST_F(StoreTest, ATornTailIsCutAtTheLastWholeChange) {
  ASSERT_TRUE(first->put("a", "1").ok());
  ASSERT_TRUE(first->apply({put("b", "2"), put("c", "2")}).ok());
  ASSERT_TRUE(first->put("a", "3").ok());
  ASSERT_TRUE(first->remove("b").ok());
  first->kill();
  const auto segments = files(0, "seg-");
  ASSERT_EQ(segments.size(), 1U);
  const std::string whole = *io::read_file(disk, segments[0], kMiB);
  size_t end = whole.size();
  while (end > 0 && whole[end - 1] == 0) --end;
  std::set<std::string> states;
  std::vector<std::string> order;
  for (size_t cut = 0; cut <= end + 8; ++cut) {
    KvWorld copy;
    ASSERT_TRUE(io::make_dirs(copy.disk, kFolder + "/p0000").ok());
    for (const std::string& path :
         {segments[0], files(0, "base-")[0], files(0, "epoch-")[0], kFolder + "/store"}) {
      std::string bytes = *io::read_file(disk, path, kMiB);
      if (path == segments[0]) std::fill(bytes.begin() + static_cast<long>(cut), bytes.end(), '\0');
      ASSERT_TRUE(io::replace_file(copy.disk, path, bytes, "new").ok());
    }
    ASSERT_TRUE(copy.first->open(small_options()).ok());
    KvWorld::wait_until_owned(*copy.first);
    const std::string state = copy.first->get("a") + copy.first->get("b") + copy.first->get("c");
    if (order.empty() || order.back() != state) order.push_back(state);
    ASSERT_TRUE(copy.first->put("d", "4").ok());
    copy.reopen(small_options());
    EXPECT_EQ(copy.first->get("a") + copy.first->get("b") + copy.first->get("c"), state) << cut;
    EXPECT_EQ(copy.first->get("d"), "4");
  }
  const std::vector<std::string> expected{"(none)(none)(none)", "1(none)(none)", "122", "322",
                                          "3(none)2"};
  EXPECT_EQ(order, expected);
}

TEST_F(StoreTest, DamagedRecordsAreReportedAndOthersServe) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(first->put(fmt::format("key{}", i), std::string(200, 'x')).ok());
  }
  first->close();
  const auto segments = files(0, "seg-");
  ASSERT_GT(segments.size(), 2U);
  ASSERT_TRUE(disk.flip_bit(segments[0], (kSegmentHeader + 100) * 8).ok());  // a value
  ASSERT_TRUE(disk.flip_bit(segments[1], (kSegmentHeader + 2) * 8).ok());    // a checksum
  ASSERT_TRUE(first->open(small_options()).ok());
  int damaged = 0;
  for (int i = 0; i < 200; ++i) {
    const std::string got = first->get(fmt::format("key{}", i));
    damaged += got == "(corrupt)" ? 1 : 0;
    EXPECT_TRUE(got == "(corrupt)" || got == std::string(200, 'x')) << got;
  }
  EXPECT_EQ(damaged, 2);
  const auto damage = first->store->damage();
  ASSERT_EQ(damage.size(), 2U);
  EXPECT_NE(damage[0].find("key: key0"), std::string::npos) << damage[0];
  // Compaction keeps the segment; a new value is whole.
  ASSERT_TRUE(first->put("key0", "new").ok());
  for (int i = 1; i < 200; ++i) ASSERT_TRUE(first->put(fmt::format("key{}", i), "y").ok());
  first->sleep(10 * kSecond);
  EXPECT_EQ(first->get("key0"), "new");
}

// Without its footer, a segment is read record by record; damaged ones are named.
TEST_F(StoreTest, DamagedFootersAreReplacedByAScan) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(first->put(fmt::format("key{}", i), std::string(200, 'x')).ok());
  }
  first->close();
  for (const std::string& path : files(0, "seg-")) {
    const uint64_t size = disk.info(path)->size;
    ASSERT_TRUE(disk.flip_bit(path, (size - kTrailer - 10) * 8).ok());
  }
  ASSERT_TRUE(disk.flip_bit(files(0, "seg-")[0], (kSegmentHeader + 100) * 8).ok());
  ASSERT_TRUE(first->open(small_options()).ok());
  for (int i = 1; i < 200; ++i) {
    EXPECT_EQ(first->get(fmt::format("key{}", i)), std::string(200, 'x'));
  }
  EXPECT_EQ(first->store->counts(0).keys, 199U);
  ASSERT_EQ(first->store->damage().size(), 1U);
  EXPECT_NE(first->store->damage()[0].find("key: key0"), std::string::npos);
}

// A partition that cannot be opened stays without an owner, however often that is tried.
TEST_F(StoreTest, ADamagedBaseLeavesThePartitionAlone) {
  ASSERT_TRUE(first->put("a", "1").ok());
  first->close();
  const std::string path = files(0, "base-")[0];
  const std::string good = *io::read_file(disk, path, kMiB);
  ASSERT_TRUE(io::replace_file(disk, path, good + "x", "new").ok());
  ASSERT_TRUE(first->open(small_options()).ok());
  first->sleep(60 * kSecond);
  EXPECT_FALSE(first->store->owned(0));
  EXPECT_EQ(first->get("a"), "(stale)");
  EXPECT_LE(files(0, "").size(), 6U);
  ASSERT_TRUE(io::replace_file(disk, path, good, "new").ok());
  wait_until_owned(*first);
  EXPECT_EQ(first->get("a"), "1");
}

TEST_F(StoreTest, OtherFilesAreRefused) {
  first->close();
  const std::string path = kFolder + "/store";
  const std::string good = *io::read_file(disk, path, kMiB);
  std::string newer = good;
  newer.replace(newer.find("store 1"), 7, "store 9");
  ASSERT_TRUE(io::replace_file(disk, path, newer, "x").ok());
  EXPECT_EQ(first->open(small_options()).error().code, Errc::newer_format);
  ASSERT_TRUE(io::replace_file(disk, path, good.substr(0, good.size() - 2), "x").ok());
  EXPECT_EQ(first->open(small_options()).error().code, Errc::corrupt);
  ASSERT_TRUE(io::replace_file(disk, path, "something else", "x").ok());
  EXPECT_EQ(first->open(small_options()).error().code, Errc::corrupt);
}

}  // namespace
}  // namespace ff::kvstore

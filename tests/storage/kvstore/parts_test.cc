// Parts and their owners: apart from keys, as durable as they are, and never removed by the store.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "storage/kvstore/kv_world.h"

namespace ff::kvstore {
namespace {

std::string name_of(std::string_view owner, int number) {
  return part_name(redis_slot(owner), fmt::format("part {}", number));
}

Change owner(std::string key, std::string value, int64_t expires_ms = 0) {
  return {.key = std::move(key),
          .value = std::move(value),
          .expires_ms = expires_ms,
          .role = RecordRole::owner};
}

Change part(std::string name, std::string value) {
  return {.key = std::move(name), .value = std::move(value), .role = RecordRole::part};
}

class PartsTest : public testing::Test, public KvWorld {
 protected:
  void SetUp() override { open(small_options()); }
  void open(Options options) { ASSERT_TRUE(first->open(std::move(options)).ok()); }
  std::string get_part(const std::string& name) {
    const auto entry = run_task(first->loop, first->store->get_part(name));
    if (!entry) return "(error)";
    return *entry ? (*entry)->value : "(none)";
  }
  std::set<std::string> leftovers() {
    std::set<std::string> found;
    const auto some = run_task(first->loop, first->store->leftovers(0, 100));
    for (const Leftover& one : *some) found.insert(one.key);
    return found;
  }
  int64_t now_ms() { return world.clock().wall_ns() / kMillisecond; }
};

TEST_F(PartsTest, NamesAreNoKeys) {
  const std::string name = name_of("k", 1);
  ASSERT_TRUE(first->apply({owner("k", "head"), part(name, "page"), put(name, "value")}).ok());
  EXPECT_EQ(first->get("k"), "head");
  EXPECT_EQ(first->get(name), "value");
  EXPECT_EQ(get_part(name), "page");
  EXPECT_EQ(first->scan_all(0, 1), first->scan_all(0, 10));
  EXPECT_EQ(first->scan_all(0, 10).size(), 2u);
  EXPECT_EQ(first->store->counts(0).keys, 2u);
  EXPECT_EQ(first->store->find("k").value()->role, RecordRole::owner);
  ASSERT_TRUE(first->remove(name).ok());
  EXPECT_EQ(get_part(name), "page");
  ASSERT_TRUE(
      first->apply({{.kind = Change::Kind::remove, .key = name, .role = RecordRole::part}}).ok());
  EXPECT_EQ(get_part(name), "(none)");
}

// Of a killed process without footers, of a closed one with footers, and after compaction.
TEST_F(PartsTest, RolesStay) {
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < 200; i++) {
      ASSERT_TRUE(first
                      ->apply({owner("k", fmt::format("head {}", i)),
                               part(name_of("k", i % 50), fmt::format("page {}", i)),
                               put("other", std::string(2000, 'x'))})
                      .ok());
    }
    if (round % 2 == 1) {
      first->close();
      open(small_options());
    } else {
      reopen(small_options());
    }
    first->sleep(20 * kSecond);
    EXPECT_EQ(first->store->counts(0).keys, 2u);
    EXPECT_EQ(first->store->find("k").value()->role, RecordRole::owner);
    for (int i = 0; i < 50; i++)
      EXPECT_EQ(get_part(name_of("k", i)), fmt::format("page {}", 150 + i));
  }
}

TEST_F(PartsTest, AnExpiryLeavesTheOwnerAnOwner) {
  ASSERT_TRUE(first->apply({owner("k", "head")}).ok());
  ASSERT_TRUE(first->apply({expiry("k", now_ms() + 1000)}).ok());
  EXPECT_EQ(first->store->find("k").value()->role, RecordRole::owner);
}

TEST_F(PartsTest, OwnersThatExpireAreLeftovers) {
  ASSERT_TRUE(first
                  ->apply({owner("k", "head", now_ms() + 1000), put("p", "v", now_ms() + 1000),
                           owner("stays", "head")})
                  .ok());
  EXPECT_EQ(leftovers(), std::set<std::string>());
  first->sleep(30 * kSecond);
  EXPECT_EQ(first->get("k"), "(none)");
  EXPECT_EQ(first->store->counts(0).keys, 2u) << "the store has removed the plain key alone";
  EXPECT_EQ(leftovers(), std::set<std::string>({"k"}));
  EXPECT_EQ(run_task(first->loop, first->store->get_owner("k")).value()->value, "head");
  ASSERT_TRUE(first->remove("k").ok());
  EXPECT_EQ(leftovers(), std::set<std::string>());
  EXPECT_EQ(first->store->counts(0).keys, 1u);
}

TEST_F(PartsTest, LeftoversAreFoundAgainAfterAKill) {
  const std::string name = name_of("k", 1);
  ASSERT_TRUE(first->apply({{.key = name, .value = "v", .role = RecordRole::leftover}}).ok());
  reopen(small_options());
  EXPECT_EQ(leftovers(), std::set<std::string>({name}));
  EXPECT_EQ(first->store->counts(0).keys, 0u);
}

// The caller reads leftovers while another one clears the partition.
TEST_F(PartsTest, LeftoversMayGoWhileTheyAreRead) {
  for (int i = 0; i < 50; i++) {
    Change change{.key = name_of("k", i), .value = "v", .role = RecordRole::leftover};
    std::vector<Change> changes;
    changes.push_back(std::move(change));
    ASSERT_TRUE(first->apply(std::move(changes)).ok());
  }
  Gate gate(first->loop);
  size_t found = 0;
  const auto read = [&]() -> Task<void> {
    const auto some = co_await first->store->leftovers(0, 100);
    if (some) found = some->size();
  };
  const auto clear = [&]() -> Task<void> { EXPECT_TRUE((co_await first->store->clear(0)).ok()); };
  gate.spawn(read());
  gate.spawn(clear());
  run_task(first->loop, gate.wait_empty());
  EXPECT_LT(found, 50u);
  EXPECT_EQ(leftovers(), std::set<std::string>());
}

// A page does not look at all parts to find a key behind them.
TEST_F(PartsTest, ScansGoOverManyPartsInPages) {
  for (int i = 0; i < 45'000; i += 500) {
    std::vector<Change> changes;
    for (int k = i; k < i + 500; k++) changes.push_back(part(name_of("k", k), "v"));
    ASSERT_TRUE(first->apply(std::move(changes)).ok());
  }
  for (int i = 0; i < 5; i++) ASSERT_TRUE(first->put(fmt::format("key {}", i), "v").ok());
  const auto keys = first->scan_all(0, 100);
  EXPECT_EQ(keys.size(), 5u);
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 5u);
  const auto page = run_task(first->loop, first->store->scan(0, 0, 100));
  EXPECT_NE(page->next, 0u);
}

// Plain keys make room for parts, parts for nothing; and then nothing grows any more.
TEST_F(PartsTest, ALimitEvictsPlainKeysAlone) {
  Options options = small_options();
  options.max_bytes = 100 * kKiB;
  reopen(options);
  for (int i = 0; i < 150; i++) {
    ASSERT_TRUE(first->put(fmt::format("p{}", i), std::string(1000, 'x')).ok());
  }
  int parts = 0;
  std::optional<Errc> error;
  for (; parts < 200 && !error; parts++) {
    const auto applied =
        first->apply({owner("k", "head"), part(name_of("k", parts), std::string(1000, 'x'))});
    if (!applied) error = applied.error().code;
  }
  EXPECT_EQ(error, Errc::disk_full);
  EXPECT_GT(parts, 80);
  for (int i = 0; i < parts - 1; i++) EXPECT_EQ(get_part(name_of("k", i)).size(), 1000u);
  EXPECT_EQ(first->put("p", std::string(1000, 'x')).error().code, Errc::disk_full);
  EXPECT_TRUE(first->apply({owner("k", "h"), part(name_of("k", 0), "less")}).ok());
  EXPECT_TRUE(first->put("p", std::string(500, 'x')).ok());
}

}  // namespace
}  // namespace ff::kvstore

// Pools of pages in memory: which pages new keys get, and that blocks have all of it.
#include "storage/kvcache/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "platform/base/rng.h"

namespace ff::kvcache {
namespace {

PoolTime at(uint32_t seconds) { return {.wall_s = 1'000'000 + seconds, .steady_s = seconds}; }
std::string packed(std::string_view key) { return std::string(PackedKey(key).text()); }

class PagePoolTest : public testing::Test {
 protected:
  explicit PagePoolTest(uint64_t pages = 4) : pool_(pages, "secret") {}

  std::optional<uint32_t> reserve(const std::string& key, uint32_t seconds = 0,
                                  const std::set<uint32_t>& keep = {}) {
    PagePicker picker(pool_, keep, at(seconds));
    const auto page = picker.next();
    if (!page) return page;
    PagePlan plan;
    plan[*page] = {.state = PageState::reserved, .key = packed(key)};
    evicted_ += pool_.commit(plan, at(seconds));
    return page;
  }
  // Whether the page belonged to the key.
  bool confirm(const std::string& key, uint32_t page, uint32_t seconds = 0) {
    PagePlan plan;
    const auto confirmed = pool_.confirm(key, page, plan);
    EXPECT_TRUE(confirmed.planned);
    pool_.commit(plan, at(seconds));
    return confirmed.valid;
  }
  void put(const std::string& key, uint32_t seconds = 0) {
    const auto page = reserve(key, seconds);
    ASSERT_TRUE(page);
    EXPECT_TRUE(confirm(key, *page, seconds));
  }
  void remove(const std::string& key) {
    PagePlan plan;
    EXPECT_TRUE(pool_.remove(key, plan));
    pool_.commit(plan, at(0));
  }
  void release(uint32_t page) {
    PagePlan plan;
    EXPECT_TRUE(pool_.release(page, plan));
    pool_.commit(plan, at(0));
  }

  PagePool pool_;
  uint64_t evicted_ = 0;
};

TEST_F(PagePoolTest, KeysThatDifferArePackedDifferently) {
  const std::vector<std::string> keys = {"",
                                         "a",
                                         "ab",
                                         "abc",
                                         "abcd",
                                         "AB",
                                         "\xab",
                                         "ab-k",
                                         "ab-v",
                                         "0ab",
                                         "ab0",
                                         "abg",
                                         "gab",
                                         "\x01a",
                                         "\x01\xab",
                                         std::string(1024, 'f'),
                                         std::string(1023, 'f'),
                                         std::string(1024, 'x')};
  std::set<std::string> seen;
  for (const std::string& key : keys) seen.insert(packed(key));
  EXPECT_EQ(seen.size(), keys.size());
  EXPECT_EQ(packed(std::string(64, 'a')).size(), 33);  // a digest takes half of its digits
}

TEST_F(PagePoolTest, AKeyIsFoundOnceItsPageIsConfirmed) {
  const auto page = reserve("one");
  ASSERT_TRUE(page);
  EXPECT_FALSE(pool_.find("one"));
  EXPECT_TRUE(confirm("one", *page));
  EXPECT_EQ(pool_.find("one"), page);
  EXPECT_TRUE(confirm("one", *page));  // a repeated request
  EXPECT_EQ(pool_.find("one"), page);
  EXPECT_EQ(pool_.used(), 1);
  EXPECT_EQ(pool_.reserved(), 0);
}

TEST_F(PagePoolTest, OnlyTheKeyOfAReservationGetsItsPage) {
  const auto page = reserve("one");
  ASSERT_TRUE(page);
  EXPECT_FALSE(confirm("two", *page));
  EXPECT_FALSE(confirm("one", *page + 1));  // free
  EXPECT_FALSE(confirm("one", 4));          // there is no such page
  EXPECT_FALSE(pool_.find("two"));
  EXPECT_FALSE(pool_.find("one"));
  EXPECT_TRUE(confirm("one", *page));
  release(*page);  // used: it stays
  EXPECT_EQ(pool_.find("one"), page);
}

TEST_F(PagePoolTest, ReleasedAndRemovedPagesComeBackLast) {
  const auto first = reserve("one");
  release(*first);
  std::set<uint32_t> pages;
  for (const std::string key : {"a", "b", "c"}) pages.insert(*reserve(key));
  EXPECT_EQ(pages.size(), 3);
  EXPECT_FALSE(pages.contains(*first));
  EXPECT_EQ(reserve("d"), first);
  EXPECT_FALSE(reserve("e"));  // all are reserved
  EXPECT_TRUE(confirm("d", *first));
  remove("d");
  EXPECT_FALSE(pool_.find("d"));
  EXPECT_EQ(reserve("e"), first);
}

TEST_F(PagePoolTest, TheKeyThatWasNotUsedForLongestIsEvicted) {
  for (const std::string key : {"a", "b", "c", "d"}) put(key);
  pool_.touch(*pool_.find("a"), at(5));
  const auto page = pool_.find("b");
  EXPECT_EQ(reserve("e"), page);
  EXPECT_FALSE(pool_.find("b"));
  EXPECT_TRUE(pool_.find("a"));
  EXPECT_EQ(evicted_, 1);
  // Of the keys that must stay, none is evicted.
  EXPECT_FALSE(reserve("f", 0, {*pool_.find("a"), *pool_.find("c"), *pool_.find("d")}));
}

TEST_F(PagePoolTest, AReservationLapsesWhenItsClientHasDied) {
  for (const std::string key : {"a", "b", "c"}) put(key);
  const auto page = reserve("dead", 10);
  EXPECT_EQ(reserve("d", 10 + kReservationS), page);
  EXPECT_FALSE(confirm("dead", *page));  // it comes too late
  EXPECT_TRUE(confirm("d", *page));
  EXPECT_EQ(evicted_, 0);
}

TEST_F(PagePoolTest, ASecondReservationOfAKeyReplacesTheFirst) {
  const auto first = reserve("key"), second = reserve("key");
  ASSERT_NE(first, second);
  PagePlan plan;
  EXPECT_TRUE(pool_.confirm("key", *first, plan).planned);
  EXPECT_FALSE(pool_.confirm("key", *second, plan).planned);  // after the first
  pool_.commit(plan, at(0));
  EXPECT_TRUE(confirm("key", *second));
  EXPECT_EQ(pool_.find("key"), second);
  EXPECT_EQ(pool_.used(), 1);
  EXPECT_EQ(pool_.reserved(), 0);
}

TEST_F(PagePoolTest, DamagedBlocksAreRefused) {
  put("key");
  const std::string whole = pool_.encode_block(0, {}, at(0));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    PagePool other(4, "");
    EXPECT_FALSE(other.load_block(0, whole.substr(0, bytes))) << bytes;
  }
  PagePool other(4, "");
  EXPECT_FALSE(other.load_block(0, whole + "x"));
  EXPECT_FALSE(other.load_block(1, whole));  // behind the last page
  std::string state = whole;
  state[1] = 3;
  EXPECT_FALSE(PagePool(4, "").load_block(0, state));
  EXPECT_TRUE(PagePool(4, "").load_block(0, whole));
}

// Random changes against a model; now and then the pool is stored and read again.
TEST(PagePoolModelTest, NoPageHasTwoKeys) {
  constexpr uint64_t kPages = 70;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRng dice(seed);
    const std::set<uint32_t> none;
    auto pool = std::make_unique<PagePool>(kPages, "secret");
    std::map<std::string, uint32_t> keys;      // confirmed; may be evicted
    std::map<uint32_t, std::string> reserved;  // by page
    uint32_t now = 0;
    for (int step = 0; step < 3000; ++step) {
      now += static_cast<uint32_t>(dice.below(2));
      const std::string key = "key" + std::to_string(dice.below(200));
      PagePlan plan;
      const uint64_t what = dice.below(8);
      if (what < 4 && !pool->find(key)) {
        PagePicker picker(*pool, none, at(now));
        const auto page = picker.next();
        if (page) {
          std::erase_if(keys, [&](const auto& entry) { return entry.second == *page; });
          reserved[*page] = key;
          plan[*page] = {.state = PageState::reserved, .key = packed(key)};
        }
      } else if (what < 6 && !reserved.empty()) {
        const auto one =
            std::next(reserved.begin(), static_cast<int64_t>(dice.below(reserved.size())));
        EXPECT_TRUE(pool->confirm(one->second, one->first, plan).valid);
        keys[one->second] = one->first;
        reserved.erase(one);
      } else if (what == 6) {
        EXPECT_TRUE(pool->remove(key, plan));
        keys.erase(key);
      } else if (!reserved.empty() && dice.below(2) == 0) {
        EXPECT_TRUE(pool->release(reserved.begin()->first, plan));
        reserved.erase(reserved.begin());
      }
      pool->commit(plan, at(now));
      ASSERT_EQ(pool->used(), keys.size()) << seed << " " << step;
      ASSERT_EQ(pool->reserved(), reserved.size());
      if (dice.below(100) == 0) {
        auto again = std::make_unique<PagePool>(kPages, "another secret");
        for (uint32_t i = 0; i < pool->blocks(); ++i) {
          const std::string stored = pool->encode_block(i, {}, at(now));
          if (!stored.empty()) {
            ASSERT_TRUE(again->load_block(i, stored));
          }
        }
        again->finish_load(pool->blocks(), at(now));
        pool = std::move(again);
      }
      std::set<uint32_t> pages;
      for (const auto& [name, page] : keys) {
        ASSERT_EQ(pool->find(name), page);
        ASSERT_TRUE(pages.insert(page).second && !reserved.contains(page));
      }
    }
  }
}

TEST(PagePoolSizeTest, AKeyTakesLessThanAHundredBytes) {
  constexpr uint32_t kKeys = 50'000;
  PagePool pool(kKeys, "secret");
  PagePlan plan;
  const std::set<uint32_t> none;
  PagePicker picker(pool, none, at(0));
  SeededRng dice(1);
  for (uint32_t i = 0; i < kKeys; ++i) {
    const std::string key = dice.hex_id() + dice.hex_id() + "-k";
    plan[*picker.next()] = {.state = PageState::used, .key = packed(key)};
  }
  pool.commit(plan, at(0));
  EXPECT_EQ(pool.used(), kKeys);
  EXPECT_LT(pool.memory_bytes() / kKeys, 100);
}

}  // namespace
}  // namespace ff::kvcache

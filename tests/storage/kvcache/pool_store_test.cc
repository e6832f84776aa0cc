// Pools in a store: what was acknowledged outlives killed processes, whenever they stop; the
// process that takes a pool over continues it, and the former one answers nothing from its memory.
#include "storage/kvcache/pool_store.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/kvcache/cache_world.h"

namespace ff::kvcache {
namespace {

using Keys = std::vector<std::string>;
using Pages = std::vector<int64_t>;

// Calls of one client.
class Client {
 public:
  explicit Client(PoolStore& pools, Loop& loop, PoolName name = {.rank = 0, .name_space = "kv"})
      : pools_(pools), loop_(loop), name_(std::move(name)) {}

  Result<void> initialize(uint64_t pages) {
    return run_task(loop_, pools_.initialize(name_, pages));
  }
  // The pages; those that keys had before as -2 - page.
  Result<Pages> reserve(const Keys& keys) {
    FF_TRY(const auto got, run_task(loop_, pools_.reserve(name_, views(keys))));
    Pages pages;
    for (const auto& one : got) pages.push_back(one.exists ? -2 - one.page : one.page);
    return pages;
  }
  Result<void> confirm(const Keys& keys, const Pages& pages, Pages released = {}) {
    std::vector<PoolStore::KeyPage> written;
    for (size_t i = 0; i < keys.size(); ++i) written.emplace_back(keys[i], pages[i]);
    return run_task(loop_, pools_.confirm(name_, std::move(written), std::move(released)));
  }
  Result<void> put(const Keys& keys) {
    FF_TRY(const auto pages, reserve(keys));
    return confirm(keys, pages);
  }
  Result<void> remove(const Keys& keys) {
    return run_task(loop_, pools_.remove(name_, views(keys)));
  }
  Result<void> clear() { return run_task(loop_, pools_.clear(name_)); }
  // The pages; -1: none.
  Result<Pages> find(const Keys& keys) { return run_task(loop_, find_all(keys)); }

 private:
  static std::vector<std::string_view> views(const Keys& keys) {
    return {keys.begin(), keys.end()};
  }
  Task<Result<Pages>> find_all(const Keys& keys) {
    FF_CO_TRY(PagePool* const pool, co_await pools_.open(name_));
    Pages pages;
    for (const std::string& key : keys) {
      const auto page = pool->find(key);
      if (page) pool->touch(*page, pools_.now());
      pages.push_back(page ? int64_t{*page} : -1);
    }
    co_return pages;
  }

  PoolStore& pools_;
  Loop& loop_;
  const PoolName name_;
};

class PoolStoreTest : public testing::Test, public CacheWorld {
 protected:
  void SetUp() override {
    start();
    ASSERT_TRUE(client().initialize(40));
  }
  Client client(std::string name_space = "kv") {
    return Client(process->pools, process->loop, {.rank = 0, .name_space = std::move(name_space)});
  }
  static Keys numbered(std::string_view name, int count) {
    Keys keys;
    for (int i = 0; i < count; ++i) keys.push_back(fmt::format("{}{}", name, i));
    return keys;
  }
  size_t records() { return w.first->scan_all(0, 1000).size(); }
};

TEST_F(PoolStoreTest, EverythingOutlivesTheProcess) {
  ASSERT_TRUE(client().put({"a", "b"}));
  const auto reserved = client().reserve({"c"});
  ASSERT_TRUE(reserved);
  ASSERT_TRUE(client().put({"d"}));
  ASSERT_TRUE(client().remove({"b"}));
  start();
  EXPECT_EQ(client().find({"a", "b", "c", "d"}).value(), (Pages{0, -1, -1, 3}));
  // The page of c belongs to its client still, those that are free do not come twice.
  const auto pages = client().reserve(numbered("new", 38));
  ASSERT_TRUE(pages);
  std::set<int64_t> distinct(pages->begin(), pages->end());
  EXPECT_EQ(distinct.size(), 38);
  EXPECT_FALSE(distinct.contains(2));
  EXPECT_TRUE(distinct.contains(1));
  EXPECT_TRUE(client().confirm({"c"}, *reserved));
  EXPECT_EQ(client().find({"c"}).value(), (Pages{2}));
}

TEST_F(PoolStoreTest, TheOrderOfEvictionOutlivesTheProcess) {
  for (const std::string& key : numbered("key", 40)) {
    ASSERT_TRUE(client().put({key}));
    w.first->sleep(2 * kSecond);
  }
  start();
  const auto pages = client().reserve({"x", "y"});
  EXPECT_EQ(client().find({"key0", "key1", "key2"}).value(), (Pages{-1, -1, 2}));
  EXPECT_EQ(pages.value(), (Pages{0, 1}));
}

TEST_F(PoolStoreTest, AReservationOfADeadClientLapses) {
  ASSERT_TRUE(client().reserve(numbered("dead", 40)));
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{-1}));
  w.first->sleep(int64_t{kReservationS - 60} * kSecond);
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{-1}));
  start();  // it begins anew
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{-1}));
  w.first->sleep(int64_t{kReservationS - 60} * kSecond);
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{-1}));
  w.first->sleep(120 * kSecond);
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{0}));
}

TEST_F(PoolStoreTest, ClearFreesPagesAndRecords) {
  ASSERT_TRUE(client().initialize(5000));
  ASSERT_TRUE(client("other").initialize(5000));
  ASSERT_TRUE(client("other").put(numbered("key", 2000)));
  const size_t before = records();
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(client("other").clear());
    EXPECT_EQ(records(), 2);
    EXPECT_EQ(client("other").find({"key1"}).value(), (Pages{-1}));
    start();
    EXPECT_EQ(client("other").find({"key1"}).value(), (Pages{-1}));
    EXPECT_EQ(client("other").put(numbered("key", 2000)).ok(), true);
    EXPECT_EQ(records(), before);
  }
}

TEST_F(PoolStoreTest, WhatClearCouldNotRemoveGoesLater) {
  ASSERT_TRUE(client("other").initialize(5000));
  ASSERT_TRUE(client("other").put(numbered("key", 3000)));
  // Stopped behind the first write of clear.
  bool cleared = false;
  for (uint64_t stop = 1; !cleared; ++stop) {
    w.disk.crash_at(w.disk.mutations() + stop);
    (void)client("other").clear();
    process.reset();
    w.disk.crash();
    w.first->kill();
    w.disk.kill();
    w.disk.crash_at(UINT64_MAX);
    start();
    cleared = client("other").find({"key1"}).value() == Pages{-1};
    ASSERT_LT(stop, 10);
  }
  EXPECT_EQ(records(), 2);
}

TEST_F(PoolStoreTest, ADamagedPoolCanBeCleared) {
  ASSERT_TRUE(client().put({"a"}));
  ASSERT_TRUE(w.first->put("{0:kv}0:0", "nonsense"));
  const auto found = client().find({"a"});  // what is in memory counts
  EXPECT_TRUE(found);
  start();
  const auto refused = client().find({"a"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::corrupt);
  EXPECT_FALSE(client().reserve({"b"}));
  ASSERT_TRUE(client().clear());
  EXPECT_TRUE(client().put({"b"}));
  start();
  EXPECT_EQ(client().find({"a", "b"}).value(), (Pages{-1, 0}));
}

TEST_F(PoolStoreTest, AFailedChangeIsNotVisible) {
  ASSERT_TRUE(client().put(numbered("key", 40)));
  w.disk.set_fault(sim::SimOp::write, 1, EIO);
  EXPECT_FALSE(client().reserve({"x"}));
  EXPECT_FALSE(client().remove({"key7"}));
  EXPECT_FALSE(client().clear());
  EXPECT_EQ(client().find({"key0", "key7"}).value(), (Pages{0, 7}));
  w.disk.set_fault(sim::SimOp::write, 0, 0);
  EXPECT_EQ(client().reserve({"x"}).value(), (Pages{1}));  // key0 was used
  EXPECT_EQ(client().find({"key0", "key1"}).value(), (Pages{0, -1}));
}

// All changes there are, stopped at each change of the disk, by a kill or a power loss.
TEST(PoolCrashTest, MayStopAnywhere) {
  uint64_t mutations = UINT64_MAX;
  for (uint64_t stop = 0; stop < mutations; ++stop) {
    SCOPED_TRACE(testing::Message() << "stopped at " << stop);
    CacheWorld world;
    world.durable = true;
    world.start();
    const auto client = [&] { return Client(world.process->pools, world.process->loop); };
    world.w.disk.crash_at(world.w.disk.mutations() + stop);
    const bool made = client().initialize(3).ok();
    const auto first = client().reserve({"a", "b"});
    const bool confirmed = first && client().confirm({"a"}, {first->at(0)}, {first->at(1)});
    const auto second = client().reserve({"c", "d"});
    const bool used = second && client().confirm({"c", "d"}, *second);
    const auto evicted = client().reserve({"e"});  // a goes
    const bool removed = evicted && client().remove({"c"});
    if (!world.w.disk.crashed()) mutations = stop;
    world.process.reset();
    world.w.disk.crash();
    world.w.first->kill();
    stop % 2 == 0 ? world.w.disk.power_loss() : world.w.disk.kill();
    world.w.disk.crash_at(UINT64_MAX);
    world.start();
    const auto found = client().find({"a", "b", "c", "d", "e"});
    ASSERT_EQ(found.ok(), made || found.ok());
    if (!found) continue;
    if (confirmed && !second) {
      EXPECT_EQ(found->at(0), first->at(0));
    }
    if (used && !evicted) {
      EXPECT_EQ(found->at(2), second->at(0));
    }
    if (used) {
      EXPECT_EQ(found->at(3), second->at(1));
    }
    if (evicted) {
      EXPECT_EQ(found->at(0), -1);
    }
    if (removed) {
      EXPECT_EQ(found->at(2), -1);
    }
    EXPECT_EQ(found->at(1), -1);
    // Pages of keys and of clients do not go to others.
    std::set<int64_t> taken;
    for (const int64_t page : *found) {
      if (page >= 0) {
        EXPECT_TRUE(taken.insert(page).second);
      }
    }
    if (evicted) taken.insert(evicted->at(0));
    const auto more = client().reserve({"x"});
    ASSERT_TRUE(more);
    if (evicted) {
      EXPECT_NE(more->at(0), evicted->at(0));
    }
    if (removed) {  // one page is free
      EXPECT_FALSE(taken.contains(more->at(0)));
    }
  }
  EXPECT_GT(mutations, 8U);
}

// Several clients at the same time, and lives that end anywhere.
class PoolModelRun {
 public:
  explicit PoolModelRun(uint64_t seed) : dice_(seed), world_(seed) {}

  void run() {
    world_.start();
    ASSERT_TRUE(client().initialize(kPages));
    for (int life = 0; life < 4 && !testing::Test::HasFailure(); ++life) {
      world_.w.disk.crash_at(world_.w.disk.mutations() + 20 + dice_.below(300));
      run_task(world_.process->loop, clients());
      world_.process.reset();
      world_.w.disk.crash();
      world_.w.first->kill();
      world_.w.disk.kill();
      world_.w.disk.crash_at(UINT64_MAX);
      world_.start();
      check();
    }
  }

 private:
  static constexpr uint64_t kPages = 90;

  Client client() { return Client(world_.process->pools, world_.process->loop); }
  Task<void> clients() {
    Gate gate(world_.process->loop);
    for (int i = 0; i < 4; ++i) gate.spawn(one_client());
    co_await gate.wait_empty();
  }
  Task<void> one_client() {
    for (int i = 0; i < 60 && !world_.w.disk.crashed(); ++i) {
      Keys keys;
      for (uint64_t n = 1 + dice_.below(6); n > 0; --n) {
        keys.push_back("key" + std::to_string(dice_.below(kPages * 2)));
      }
      co_await write(keys);
    }
  }
  Task<void> write(const Keys& keys) {
    PoolStore& pools = world_.process->pools;
    const PoolName name{.rank = 0, .name_space = "kv"};
    std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto got = co_await pools.reserve(name, std::move(views));
    if (!got) co_return;
    std::vector<PoolStore::KeyPage> written;
    std::vector<int64_t> released;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Reservation& one = (*got)[i];
      if (one.exists || one.page < 0) continue;
      // Nobody else writes to this page.
      EXPECT_TRUE(writing_.insert(one.page).second) << "page " << one.page << " has two clients";
      if (dice_.below(5) == 0) {
        released.push_back(one.page);
      } else {
        written.emplace_back(keys[i], one.page);
      }
    }
    (void)co_await sleep_for(world_.process->loop, static_cast<int64_t>(dice_.below(1000)));
    // Whatever happens now, these pages are not written to any more by this client.
    const auto done_written = written;
    const auto done_released = released;
    for (const int64_t page : released) writing_.erase(page);
    for (const auto& [key, page] : written) writing_.erase(page);
    const auto done = co_await pools.confirm(name, std::move(written), std::move(released));
    if (!done) {
      for (const auto& [key, page] : done_written) unknown_.insert(std::string(key));
      co_return;
    }
    for (const auto& [key, page] : done_written) confirmed_.insert(std::string(key));
  }
  // After a restart: no page has two keys, and pages that clients write to are in no key.
  void check() {
    Keys all;
    for (uint64_t i = 0; i < kPages * 2; ++i) all.push_back("key" + std::to_string(i));
    const auto found = client().find(all);
    ASSERT_TRUE(found) << found.error().message;
    std::set<int64_t> pages;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t page = (*found)[i];
      if (page < 0) continue;
      EXPECT_TRUE(confirmed_.contains(all[i]) || unknown_.contains(all[i]))
          << all[i] << " was not confirmed";
      EXPECT_TRUE(pages.insert(page).second) << "page " << page << " has two keys";
      EXPECT_FALSE(writing_.contains(page)) << "page " << page << " has a client";
    }
  }

  SeededRng dice_;
  CacheWorld world_;
  std::set<int64_t> writing_;
  std::set<std::string> confirmed_, unknown_;
};

TEST(PoolCrashTest, NoPageHasTwoKeysOrClients) {
  for (uint64_t seed = 1; seed <= kvstore::seeds(40); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    PoolModelRun run(seed);
    run.run();
    if (testing::Test::HasFailure()) return;
  }
}

// Two processes.
class PoolOwnersTest : public PoolStoreTest {
 protected:
  void SetUp() override {
    PoolStoreTest::SetUp();
    kvstore::Options second_options = options();
    second_options.address = "second";
    ASSERT_TRUE(second_.open(second_options));
    other_ = std::make_unique<CacheProcess>(second_, nullptr);
  }
  void TearDown() override { other_.reset(); }
  Client standby() { return Client(other_->pools, other_->loop); }

  kvstore::KvProcess second_{w.world, w.disk, 2};
  std::unique_ptr<CacheProcess> other_;
};

TEST_F(PoolOwnersTest, AStandbyContinues) {
  ASSERT_TRUE(client().put({"a"}));
  const auto reserved = client().reserve({"b"});
  EXPECT_EQ(standby().find({"a"}).error().code, Errc::stale);
  EXPECT_EQ(other_->pools.owner({.rank = 0, .name_space = "kv"}), "first");
  const CacheReply moved = other_->ask("/0/exists?x=1", R"({"keys":["a"]})");
  EXPECT_EQ(moved.status, 307);
  EXPECT_NE(moved.head.find("\r\nLocation: http://first/0/exists?x=1\r\n"), moved.head.npos);
  process.reset();
  w.first->kill();
  other_->owner_reachable = false;
  const CacheReply later = other_->ask("/0/exists", R"({"keys":["a"]})");
  EXPECT_EQ(later.status, 503);  // nobody is sent to the dead process
  EXPECT_EQ(later.head.find("Location"), later.head.npos);
  kvstore::KvWorld::wait_until_owned(second_);
  EXPECT_EQ(standby().find({"a", "b"}).value(), (Pages{0, -1}));
  EXPECT_TRUE(standby().confirm({"b"}, reserved.value()));
  EXPECT_EQ(standby().find({"a", "b"}).value(), (Pages{0, 1}));
  EXPECT_EQ(other_->ask("/0/exists", R"({"keys":["a"]})").body, R"({"exists":[true]})");
}

TEST_F(PoolOwnersTest, WithoutAnOwnerClientsAskAgain) {
  process.reset();
  w.first->kill();
  second_.close();
  kvstore::Options options = this->options();
  options.claim = false;
  other_.reset();
  ASSERT_TRUE(second_.open(options));
  other_ = std::make_unique<CacheProcess>(second_, nullptr);
  const CacheReply reply = other_->ask("/0/exists", R"({"keys":["a"]})");
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.head.find("\r\nRetry-After: 4\r\n"), reply.head.npos);
}

TEST_F(PoolOwnersTest, AFormerOwnerAnswersNothing) {
  ASSERT_TRUE(client().put({"a"}));
  w.first->loop.set_paused(true);
  kvstore::KvWorld::wait_until_owned(second_);
  w.first->loop.set_paused(false);
  EXPECT_EQ(client().find({"a"}).error().code, Errc::stale);
  EXPECT_EQ(client().reserve({"x"}).error().code, Errc::stale);
}

// Nobody asks it while another process has the pool: so it does not know.
TEST_F(PoolOwnersTest, AFormerOwnerReadsAnewWhatOthersHaveChanged) {
  ASSERT_TRUE(client().put({"a"}));
  w.first->loop.set_paused(true);
  kvstore::KvWorld::wait_until_owned(second_);
  ASSERT_TRUE(standby().remove({"a"}));
  ASSERT_TRUE(standby().put({"b", "c"}));
  w.first->loop.set_paused(false);
  other_.reset();
  second_.close();
  w.first->sleep(5 * kSecond);
  EXPECT_EQ(client().find({"a", "b", "c"}).value(), (Pages{-1, 1, 2}));
}

}  // namespace
}  // namespace ff::kvcache

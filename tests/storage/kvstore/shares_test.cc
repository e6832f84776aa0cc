// Several processes share the partitions of a store: each gets as many, whoever joins, dies, leaves
// or is slow, and no acknowledged change is lost while partitions change their owners.
#include "storage/kvstore/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/kvstore/cut_disk.h"
#include "storage/kvstore/kv_counter.h"
#include "storage/kvstore/kv_world.h"
#include "storage/kvstore/store_settings.h"

namespace ff::kvstore {
namespace {

using Ids = std::vector<std::string>;

std::map<std::string, size_t> numbers_of(const Ids& plan) {
  std::map<std::string, size_t> numbers;
  for (const std::string& id : plan) ++numbers[id];
  return numbers;
}

// The least number of partitions that must move, or be claimed, until all shares are even.
size_t moves_at_least(const Ids& owners, const Ids& members) {
  auto owned = numbers_of(owners);
  std::vector<size_t> numbers;
  for (const std::string& member : members) numbers.push_back(owned[member]);
  std::sort(numbers.rbegin(), numbers.rend());
  size_t stay = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t share =
        owners.size() / members.size() + (i < owners.size() % members.size() ? 1 : 0);
    stay += std::min(numbers[i], share);
  }
  return owners.size() - stay;
}

TEST(PlanShares, EvenStableAndWithFewMoves) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    Ids members, all{""};
    for (uint64_t i = 0; i <= rng.below(6); ++i) members.push_back("m" + std::to_string(i));
    all.insert(all.end(), members.begin(), members.end());
    all.push_back("other");
    Ids owners(1 + rng.below(40));
    for (std::string& owner : owners) owner = all[rng.below(all.size())];
    const Ids plan = plan_shares(owners, members);
    size_t most = 0, least = owners.size(), moves = 0;
    auto numbers = numbers_of(plan);
    for (const std::string& member : members) {
      most = std::max(most, numbers[member]);
      least = std::min(least, numbers[member]);
    }
    EXPECT_LE(most - least, 1U);
    for (size_t i = 0; i < plan.size(); ++i) moves += plan[i] != owners[i] ? 1 : 0;
    EXPECT_EQ(moves, moves_at_least(owners, members));
    EXPECT_EQ(plan_shares(plan, members), plan);
    std::reverse(members.begin(), members.end());
    members.push_back(members.front());
    EXPECT_EQ(plan_shares(owners, members), plan);
  }
}

TEST(SharingMembers, ThoseWithTheSameClients) {
  const Ids owners{"a", "b", "b", "c", ""};
  EXPECT_EQ(sharing_members(owners, {{"a", ""}, {"b", "x"}, {"c", ""}}), (Ids{"a", "c"}));
  EXPECT_EQ(sharing_members(owners, {{"a", "x"}, {"b", "y"}, {"c", "x"}, {"d", "y"}}),
            (Ids{"a", "c"}));
  EXPECT_EQ(sharing_members(owners, {{"a", "x"}, {"b", "y"}}), Ids{"b"});
  EXPECT_EQ(sharing_members({"", ""}, {{"a", "y"}, {"b", "x"}}), Ids{"b"});
}

Options shared_options(uint32_t partitions) {
  Options options = small_options();
  options.partitions = partitions;
  return options;
}

// A process behind a network of its own, and the tasks that call its store.
class Sharer {
 public:
  Sharer(sim::SimWorld& world, io::Disk& below, uint64_t seed, sim::ClockSkew skew = {})
      : disk(below), process(world, disk, seed, skew), name_("p" + std::to_string(seed)) {}
  ~Sharer() { kill(); }

  void open(Options options) {
    options.address = name_;
    const auto opened = process.open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    tasks = std::make_unique<Gate>(process.loop);
  }
  void kill() {
    tasks.reset();
    if (process.store != nullptr) process.kill();
  }
  void close() {
    run_task(process.loop, tasks->close(fail(Errc::interrupted, "the test ends it")));
    tasks.reset();
    process.close();
  }
  bool is_open() const { return process.store != nullptr; }
  uint32_t owned() const {
    uint32_t owned = 0;
    for (uint32_t i = 0; is_open() && i < process.store->partitions(); ++i) {
      owned += process.store->owned(i) ? 1 : 0;
    }
    return owned;
  }
  uint64_t metric(const std::string& name) {
    return static_cast<uint64_t>(process.metrics.counter(name, "").value());
  }
  const std::string& name() const { return name_; }

  CutDisk disk;
  KvProcess process;
  std::unique_ptr<Gate> tasks;

 private:
  const std::string name_;
};

// Some processes, a store, and a counter in each partition.
class SharedWorld {
 public:
  SharedWorld(uint64_t seed, size_t processes, uint32_t partitions, int64_t drift_ppm = 0)
      : partitions_(partitions), disk(seed, world.clock()), counters(partitions) {
    for (uint64_t i = 0; i < processes; ++i) {
      const int64_t drift = i % 2 == 0 ? drift_ppm : -drift_ppm;
      all.push_back(
          std::make_unique<Sharer>(world, disk, seed * 10 + i, sim::ClockSkew{.drift_ppm = drift}));
    }
    for (uint32_t i = 0; keys.size() < partitions; ++i) {
      std::string key = std::to_string(i);
      if (partition_of_slot(redis_slot(key), partitions) == keys.size()) keys.push_back(key);
    }
  }
  void open(size_t i) {
    Options opened = options();
    opened.host = hosts[i];
    all[i]->open(std::move(opened));
    if (!all[i]->is_open()) return;
    for (size_t k = 0; k < keys.size(); ++k) {
      all[i]->tasks->spawn(
          increment_forever(all[i]->process, counters[k], keys[k], 50 * kMillisecond));
    }
  }
  Options options() const {
    Options options = shared_options(partitions_);
    options.durable = durable;
    options.share = shares_wanted;
    return options;
  }
  // Partitions that each process serves.
  std::vector<uint32_t> shares() const {
    std::vector<uint32_t> shares;
    for (const auto& one : all) shares.push_back(one->owned());
    return shares;
  }
  // Until the processes serve so many each; the time that took.
  int64_t until(const std::vector<uint32_t>& expected, int64_t most_ns = 300 * kSecond) {
    const int64_t began_ns = world.now_ns();
    while (shares() != expected && world.now_ns() - began_ns < most_ns) {
      world.run_for(50 * kMillisecond);
    }
    EXPECT_EQ(shares(), expected);
    return world.now_ns() - began_ns;
  }
  void forget_times() {
    for (SeenCounter& counter : counters) {
      counter.last_ns = world.now_ns();
      counter.longest_ns = 0;
    }
  }
  int64_t longest_gap() {
    int64_t longest = 0;
    for (SeenCounter& counter : counters) {
      counter.note_time(world.now_ns());
      longest = std::max(longest, counter.longest_ns);
    }
    return longest;
  }
  // The owners have what was acknowledged last.
  void check_values() {
    for (size_t k = 0; k < keys.size(); ++k) {
      size_t owners = 0;
      for (const auto& one : all) {
        if (!one->is_open() || !one->process.store->owned(static_cast<uint32_t>(k))) continue;
        ++owners;
        const uint64_t before = counters[k].highest_seen;
        EXPECT_GE(number_of(one->process.get(keys[k])), before);
      }
      EXPECT_EQ(owners, 1U) << "partition " << k;
      EXPECT_EQ(counters[k].acknowledged.size(), counters[k].increments);
    }
  }
  uint64_t all_metrics(const std::string& name) {
    uint64_t sum = 0;
    for (const auto& one : all) sum += one->metric(name);
    return sum;
  }

 private:
  const uint32_t partitions_;

 public:
  sim::SimWorld world;
  sim::SimDisk disk;
  std::vector<std::unique_ptr<Sharer>> all;
  std::vector<std::string> keys;
  std::vector<SeenCounter> counters;
  bool durable = false;
  bool shares_wanted = true;
  std::map<size_t, std::string> hosts;  // Options::host
};

TEST(Shares, WhoeverJoinsGetsItsShareInOrder) {
  SharedWorld w(1, 3, 12);
  w.open(0);
  w.until({12, 0, 0});
  w.world.run_for(10 * kSecond);
  w.forget_times();
  w.open(1);
  EXPECT_LE(w.until({6, 6, 0}), 20 * kSecond);
  w.open(2);
  EXPECT_LE(w.until({4, 4, 4}), 20 * kSecond);
  w.world.run_for(30 * kSecond);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{4, 4, 4}));  // and it stays so
  EXPECT_LE(w.longest_gap(), 2 * kSecond);
  EXPECT_EQ(w.all_metrics("ff_kvstore_given_total"), 10U);
  EXPECT_EQ(w.all_metrics("ff_kvstore_claims_total"), 12U + 10U);
  EXPECT_EQ(w.all_metrics("ff_kvstore_fenced_total"), 0U);
  EXPECT_EQ(w.all[0]->process.store->losses(), 8U);
  EXPECT_TRUE(w.all[0]->process.store->is_shared());
  w.check_values();
  // Everybody knows where everything is.
  for (uint32_t k = 0; k < 12; ++k) {
    const std::string owner = w.all[0]->process.store->owner(k);
    EXPECT_FALSE(owner.empty());
    for (const auto& one : w.all) EXPECT_EQ(one->process.store->owner(k), owner) << k;
  }
}

TEST(Shares, WhatTheDeadHadIsSharedWithinTenSeconds) {
  SharedWorld w(2, 3, 12);
  for (size_t i = 0; i < 3; ++i) w.open(i);
  w.until({4, 4, 4});
  w.world.run_for(5 * kSecond);
  w.forget_times();
  w.all[0]->kill();
  EXPECT_LE(w.until({0, 6, 6}), 10 * kSecond);
  EXPECT_LE(w.longest_gap(), 10 * kSecond);
  w.check_values();
  w.forget_times();
  w.all[2]->kill();
  EXPECT_LE(w.until({0, 12, 0}), 10 * kSecond);
  EXPECT_FALSE(w.all[1]->process.store->is_shared());
  w.check_values();
  // A heartbeat that nobody writes any more goes some time.
  w.world.run_for(60 * kSecond);
  EXPECT_EQ(w.disk.list(kFolder + "/members")->size(), 1U);
}

TEST(Shares, WhoeverLeavesIsFollowedAtOnce) {
  SharedWorld w(3, 3, 12);
  for (size_t i = 0; i < 3; ++i) w.open(i);
  w.until({4, 4, 4});
  w.world.run_for(5 * kSecond);
  w.forget_times();
  w.all[1]->close();
  EXPECT_LE(w.until({6, 0, 6}), 3 * kSecond);
  EXPECT_LE(w.longest_gap(), 3 * kSecond);
  w.check_values();
}

TEST(Shares, WhoeverIsSlowKeepsItsShareUntilItsLeaseEnds) {
  SharedWorld w(4, 2, 8);
  for (size_t i = 0; i < 2; ++i) w.open(i);
  w.until({4, 4});
  w.world.run_for(10 * kSecond);
  const uint64_t claims = w.all_metrics("ff_kvstore_claims_total");
  for (int i = 0; i < 10; ++i) {
    w.all[1]->process.loop.set_paused(true);
    w.world.run_for(3 * kSecond);
    w.all[1]->process.loop.set_paused(false);
    w.world.run_for(3 * kSecond);
  }
  EXPECT_EQ(w.all_metrics("ff_kvstore_claims_total"), claims);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{4, 4}));
  // Then it does not get them back at once: it may be slow again.
  w.all[1]->process.loop.set_paused(true);
  EXPECT_LE(w.until({8, 0}), 10 * kSecond);
  w.all[1]->process.loop.set_paused(false);
  w.world.run_for(20 * kSecond);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{8, 0}));
  EXPECT_LE(w.until({4, 4}), 30 * kSecond);
  w.check_values();
}

// It gives back what it cannot open, and the one that could does not try that again and again.
TEST(Shares, WhoeverCannotOpenAPartitionDoesNotKeepIt) {
  SharedWorld w(5, 2, 8);
  w.open(0);
  w.world.run_for(5 * kSecond);
  w.forget_times();
  w.all[1]->disk.refused_prefix = "seg-";
  w.open(1);
  w.world.run_for(100 * kSecond);
  EXPECT_LE(w.all_metrics("ff_kvstore_given_total"), 3U);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{8, 0}));
  EXPECT_LE(w.longest_gap(), 10 * kSecond);
  w.all[1]->disk.refused_prefix.clear();
  w.until({4, 4});
  w.check_values();
}

// A process without the network serves nothing when its lease has ended, and what it had on its way
// does not count later.
TEST(Shares, WhoeverIsCutOffIsFenced) {
  SharedWorld w(6, 3, 12);
  for (size_t i = 0; i < 3; ++i) w.open(i);
  w.until({4, 4, 4});
  w.world.run_for(5 * kSecond);
  w.forget_times();
  w.all[0]->disk.cut();
  w.until({0, 6, 6});
  EXPECT_LE(w.longest_gap(), 10 * kSecond);
  w.world.run_for(5 * kSecond);
  w.all[0]->disk.heal();
  w.world.run_for(kSecond);
  EXPECT_EQ(w.all[0]->owned(), 0U);
  w.until({4, 4, 4});
  w.check_values();
}

// A store whose partitions are all released, and files of processes that have died: whoever comes
// then has all at once.
TEST(Shares, TheDeadGetNoShare) {
  SharedWorld w(7, 3, 8);
  w.open(0);
  w.until({8, 0, 0});
  w.open(1);
  w.until({4, 4, 0});
  w.all[1]->kill();
  w.until({8, 0, 0});
  w.all[0]->close();
  w.open(2);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{0, 0, 8}));
}

// One that only the clients of its machine reach stands by for those that all reach.
TEST(Shares, WhoeverHasOtherClientsStandsBy) {
  SharedWorld w(9, 4, 12);
  w.hosts = {{0, "x"}, {3, "y"}};
  w.open(0);
  w.until({12, 0, 0, 0});
  w.open(3);
  w.world.run_for(30 * kSecond);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{12, 0, 0, 0}));
  w.open(1);
  w.until({0, 12, 0, 0});
  w.open(2);
  w.until({0, 6, 6, 0});
  w.forget_times();
  w.all[1]->kill();
  EXPECT_LE(w.until({0, 0, 12, 0}), 10 * kSecond);
  w.world.run_for(5 * kSecond);
  w.all[2]->kill();
  w.all[3]->kill();
  EXPECT_LE(w.until({12, 0, 0, 0}), 10 * kSecond);
  EXPECT_LE(w.longest_gap(), 10 * kSecond);
  w.check_values();
}

TEST(Shares, WithoutSharesWhoeverHasAPartitionKeepsIt) {
  SharedWorld w(8, 2, 8);
  w.shares_wanted = false;
  w.open(0);
  w.open(1);
  w.world.run_for(60 * kSecond);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{8, 0}));
  EXPECT_EQ(w.all[1]->process.store->owner(7), w.all[0]->name());
  w.all[0]->kill();
  EXPECT_LE(w.until({0, 8}), 10 * kSecond);
  w.open(0);
  w.world.run_for(60 * kSecond);
  EXPECT_EQ(w.shares(), (std::vector<uint32_t>{0, 8}));
  w.check_values();
}

// Joins, kills, orderly ends, pauses, cuts of the network and slow disks, all at random.
class RandomSharers {
 public:
  explicit RandomSharers(uint64_t seed) : rng_(seed), w_(seed, 4, 6, drift(rng_)) {
    w_.durable = seed % 2 == 0;
  }

  void run() {
    w_.open(0);
    for (int round = 0; round < 14 && !testing::Test::HasFailure(); ++round) disturb();
    settle();
    w_.check_values();
  }
  uint64_t increments() const {
    uint64_t sum = 0;
    for (const SeenCounter& counter : w_.counters) sum += counter.increments;
    return sum;
  }
  uint64_t given() { return w_.all_metrics("ff_kvstore_given_total"); }

 private:
  static int64_t drift(Rng& rng) { return static_cast<int64_t>(rng.below(100'000)) - 50'000; }

  void disturb() {
    const size_t i = rng_.below(w_.all.size());
    Sharer& one = *w_.all[i];
    if (!one.is_open()) {
      w_.open(i);
    } else if (const uint64_t dice = rng_.below(6); dice == 0) {
      one.kill();
      one.process.loop.set_paused(false);
      one.disk.heal();
    } else if (dice == 1 && !paused_[i] && !cut_[i]) {
      one.close();
    } else if (dice <= 3) {
      paused_[i] = !paused_[i];
      one.process.loop.set_paused(paused_[i]);
    } else {
      cut_[i] = !cut_[i];
      cut_[i] ? one.disk.cut() : one.disk.heal();
    }
    if (!one.is_open()) paused_[i] = cut_[i] = false;
    w_.disk.set_slow(rng_.below(3) == 0 ? static_cast<int64_t>(rng_.below(kSecond / 2)) : 0);
    w_.world.run_for(static_cast<int64_t>(rng_.below(20 * kSecond)));
  }

  void settle() {
    w_.disk.set_slow(0);
    for (size_t i = 0; i < w_.all.size(); ++i) {
      w_.all[i]->process.loop.set_paused(false);
      w_.all[i]->disk.heal();
    }
    for (size_t i = 0; i < w_.all.size(); ++i) {
      if (!w_.all[i]->is_open()) w_.open(i);
    }
    const int64_t until_ns = w_.world.now_ns() + 400 * kSecond;
    while (!is_even() && w_.world.now_ns() < until_ns) w_.world.run_for(kSecond);
    EXPECT_TRUE(is_even()) << testing::PrintToString(w_.shares());
  }
  bool is_even() {
    const auto shares = w_.shares();
    uint32_t sum = 0;
    for (const uint32_t share : shares) sum += share;
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    return sum == 6 && *most - *least <= 1;
  }

  SeededRng rng_;
  SharedWorld w_;
  std::map<size_t, bool> paused_, cut_;
};

TEST(RandomSharersTest, CountersLoseNothingAndSharesAreEvenInTheEnd) {
  uint64_t increments = 0, given = 0;
  for (uint64_t seed = 1; seed <= seeds(6); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomSharers sharers(seed);
    sharers.run();
    if (testing::Test::HasFailure()) break;
    increments += sharers.increments();
    given += sharers.given();
  }
  EXPECT_GT(increments, 1'600 * seeds(6));
  EXPECT_GT(given, 10U);
}

}  // namespace
}  // namespace ff::kvstore

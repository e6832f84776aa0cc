// Two processes and one store: who owns a partition, and that a former owner, however late it
// comes, neither acknowledges a change nor answers from what it knew.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "platform/io/files.h"
#include "storage/kvstore/kv_counter.h"
#include "storage/kvstore/kv_world.h"
#include "storage/kvstore/record.h"

namespace ff::kvstore {
namespace {

class OwnersTest : public testing::Test, public KvWorld {
 protected:
  void SetUp() override {
    ASSERT_TRUE(first->open(small_options()).ok());
    ASSERT_TRUE(first->put("a", "first").ok());
  }
  Options second_options() {
    Options options = small_options();
    options.address = "second";
    return options;
  }
  // Until the process owns the partition; the time that took.
  int64_t until_owned(KvProcess& process) {
    const int64_t began_ns = world.now_ns();
    wait_until_owned(process);
    return world.now_ns() - began_ns;
  }

  KvProcess second{world, disk, 2};
};

TEST_F(OwnersTest, OthersNameTheOwner) {
  ASSERT_TRUE(second.open(second_options()).ok());
  second.sleep(30 * kSecond);
  EXPECT_FALSE(second.store->owned(0));
  EXPECT_EQ(second.store->owner(0), "first");
  EXPECT_EQ(first->store->owner(0), "first");
  const auto refused = second.put("a", "second");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::stale);
  EXPECT_NE(refused.error().message.find("owned by first"), std::string::npos);
  EXPECT_EQ(second.get("a"), "(stale)");
  EXPECT_EQ(second.store->find("a").error().code, Errc::stale);
  EXPECT_EQ(first->get("a"), "first");
}

TEST_F(OwnersTest, AClosedStoreIsTakenAtOnce) {
  ASSERT_TRUE(second.open(second_options()).ok());
  first->close();
  EXPECT_LE(until_owned(second), 2 * kSecond);
  EXPECT_EQ(second.get("a"), "first");
}

TEST_F(OwnersTest, AKilledOwnerIsReplacedWithinTenSeconds) {
  ASSERT_TRUE(second.open(second_options()).ok());
  first->kill();
  EXPECT_LE(until_owned(second), 10 * kSecond);
  EXPECT_EQ(second.get("a"), "first");
  ASSERT_TRUE(second.put("a", "second").ok());
  // It comes back and stands by.
  ASSERT_TRUE(first->open(small_options()).ok());
  first->sleep(20 * kSecond);
  EXPECT_EQ(first->store->owner(0), "second");
  EXPECT_TRUE(second.store->owned(0));
}

TEST_F(OwnersTest, APausedOwnerIsFenced) {
  ASSERT_TRUE(second.open(second_options()).ok());
  second.sleep(2 * kSecond);
  first->loop.set_paused(true);
  EXPECT_LE(until_owned(second), 10 * kSecond);
  ASSERT_TRUE(second.put("a", "second").ok());
  first->loop.set_paused(false);
  // Before it has seen anything: no answer from its old index, no acknowledgement.
  EXPECT_EQ(first->get("a"), "(stale)");
  EXPECT_EQ(first->put("b", "late").error().code, Errc::stale);
  EXPECT_EQ(second.get("a"), "second");
  first->sleep(5 * kSecond);
  EXPECT_EQ(first->store->owner(0), "second");
  second.close();
  EXPECT_LE(until_owned(*first), 3 * kSecond);
  EXPECT_EQ(first->get("a"), "second");
  EXPECT_EQ(first->get("b"), "(none)");
}

// A change that is on its way while another process claims the partition: either the new owner has
// it, or it is never seen.
TEST_F(OwnersTest, ALateWriteIsSeenAtOnceOrNever) {
  for (uint64_t seed = 1; seed <= seeds(200); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    KvWorld w(seed);
    KvProcess other(w.world, w.disk, seed + 1000);
    ASSERT_TRUE(w.first->open(small_options()).ok());
    ASSERT_TRUE(other.open(second_options()).ok());
    SeededRng rng(seed);
    std::optional<Result<Applied>> late;
    Gate gate(w.first->loop);
    const auto write = [&](std::string key) -> Task<void> {
      std::vector<Change> changes{put(std::move(key), "late")};
      late.emplace(co_await w.first->store->apply(std::move(changes)));
    };
    w.disk.set_slow(kSecond / 2);
    gate.spawn(write("k"));
    w.world.run_for(static_cast<int64_t>(rng.below(2 * kSecond)));
    w.first->loop.set_paused(true);
    KvWorld::wait_until_owned(other);
    const std::string seen = other.get("k");
    if (rng.below(2) == 0) w.first->loop.set_paused(false);
    w.world.run_for(5 * kSecond);
    EXPECT_TRUE(!late || !late->ok() || seen == "late");
    EXPECT_EQ(other.get("k"), seen);
    w.disk.set_slow(0);
    other.close();
    w.first->loop.set_paused(false);
    KvWorld::wait_until_owned(*w.first);
    EXPECT_EQ(w.first->get("k"), seen);
  }
}

// Bytes that a former owner has on their way when it loses the partition may reach its segment at
// any later time, also over what the new owner has added there.
TEST_F(OwnersTest, WhatIsWrittenBehindTheBaseDoesNotCount) {
  first->kill();
  const std::string path = files(0, "seg-").at(0);
  std::string bytes = *io::read_file(disk, path, kMiB);
  bytes.resize(bytes.find_last_not_of('\0') + 1);
  std::string late;
  append_record(late, {.version = 1000, .key = "k", .value = "late"});
  ASSERT_TRUE(second.open(second_options()).ok());
  until_owned(second);
  for (const int64_t pause_ns : {int64_t{0}, 5 * kSecond}) {
    second.sleep(pause_ns);  // the new owner adds a footer
    const auto file = disk.open(path, {.access = io::AccessMode::write});
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)->write_at(as_bytes(late), padded(bytes.size())).ok());
    EXPECT_EQ(second.get("k"), "(none)");
    second.kill();
    ASSERT_TRUE(second.open(second_options()).ok());
    until_owned(second);
    EXPECT_EQ(second.get("k"), "(none)");
    EXPECT_EQ(second.get("a"), "first");
  }
}

// A failed write may be whole in its segment, and the new owner takes it for what it is: one of
// which nobody knows the result. The former owner must not put anything in its place.
TEST_F(OwnersTest, AFormerOwnerDoesNotOverwriteWhatTheNewOneHasRead) {
  first->close();
  Options options = small_options();
  options.durable = true;
  ASSERT_TRUE(first->open(options).ok());
  ASSERT_TRUE(first->put("b", "before").ok());
  disk.set_fault(sim::SimOp::sync, 1, EIO);
  EXPECT_FALSE(first->put("k", "late").ok());
  disk.set_fault(sim::SimOp::sync, 0, 0);
  first->loop.set_paused(true);
  ASSERT_TRUE(second.open(second_options()).ok());
  until_owned(second);
  EXPECT_EQ(second.get("k"), "late");
  first->loop.set_paused(false);
  second.sleep(10 * kSecond);
  EXPECT_EQ(second.get("k"), "late");
}

class FightingOwners {
 public:
  FightingOwners(uint64_t seed, bool durable) : rng_(seed), w_(seed), durable_(durable) {
    const auto drift = static_cast<int64_t>(rng_.below(100'000)) - 50'000;  // 5 %
    second_ = std::make_unique<KvProcess>(w_.world, w_.disk, seed + 1,
                                          sim::ClockSkew{.drift_ppm = drift});
  }

  void run() {
    for (KvProcess* const process : {w_.first.get(), second_.get()}) {
      Options options = small_options();
      options.durable = durable_;
      ASSERT_TRUE(process->open(options).ok());
    }
    Gate one(w_.first->loop);
    Gate two(second_->loop);
    for (int i = 0; i < 2; ++i) {
      one.spawn(increment_forever(*w_.first, counters_[i], std::to_string(i), 50 * kMillisecond));
      two.spawn(increment_forever(*second_, counters_[i], std::to_string(i), 50 * kMillisecond));
    }
    for (int round = 0; round < 12; ++round) disturb();
    w_.disk.set_slow(0);
    w_.first->loop.set_paused(false);
    second_->loop.set_paused(false);
    w_.world.run_for(20 * kSecond);
    EXPECT_NE(w_.first->store->owned(0), second_->store->owned(0));
  }

  SeenCounter counters_[2];

 private:
  void disturb() {
    w_.first->loop.set_paused(rng_.below(3) == 0);
    second_->loop.set_paused(rng_.below(3) == 0);
    w_.disk.set_slow(rng_.below(3) == 0 ? static_cast<int64_t>(rng_.below(kSecond)) : 0);
    const sim::SimOp failing = durable_ ? sim::SimOp::sync : sim::SimOp::write;
    if (rng_.below(4) == 0) w_.disk.set_fault(failing, 0.2, EIO);
    w_.world.run_for(static_cast<int64_t>(rng_.below(12 * kSecond)));
    w_.disk.set_fault(failing, 0, 0);
  }

  SeededRng rng_;
  KvWorld w_;
  const bool durable_;
  std::unique_ptr<KvProcess> second_;
};

TEST(FightingOwnersTest, CountersLoseNothingAndReadsAreNewest) {
  uint64_t increments = 0;
  for (uint64_t seed = 1; seed <= seeds(60); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FightingOwners owners(seed, seed % 2 == 0);
    owners.run();
    if (testing::Test::HasFailure()) break;
    for (const SeenCounter& counter : owners.counters_) increments += counter.increments;
  }
  EXPECT_GT(increments, 160 * seeds(60));
}

}  // namespace
}  // namespace ff::kvstore

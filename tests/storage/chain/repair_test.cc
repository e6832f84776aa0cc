// Repair of damaged chunks from any replica that has them intact.
#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

using chunk::ChunkId;

class RepairTest : public testing::Test {
 protected:
  explicit RepairTest(size_t targets = 3) : world_(targets) {
    EXPECT_TRUE(world_.write(0, {.id = kA, .data = text_}).ok());
    EXPECT_TRUE(io::ok(world_.run(world_.ask_sync(0))));
  }
  void damage(size_t i) { world_.damage(i, text_.substr(5000, 100)); }
  bool repaired(size_t i) {
    return world_.eventually([&] { return world_.read(i, kA) == text_; });
  }
  uint64_t version(size_t i) {
    return world_.store(i).state(world_.target(i), kA)->committed.version;
  }

  ChainWorld world_;
  const std::string text_ = text_of(1, 100'000);
};

TEST_F(RepairTest, WhatAReadFindsIsWrittenAnew) {
  uint64_t repairs = 0;
  for (const size_t damaged : {0, 1, 2}) {
    damage(damaged);
    EXPECT_TRUE(world_.read(damaged, kA) == "(corrupt)") << damaged;
    ASSERT_TRUE(repaired(damaged)) << damaged;
    EXPECT_EQ(version(damaged), 1 + ++repairs);
    EXPECT_TRUE(world_.eventually([&] { return version(0) == version(2); }));
    world_.expect_equal(0, 1);
    world_.expect_equal(0, 2);
  }
  EXPECT_TRUE(world_.failures.empty());
}

TEST_F(RepairTest, OneSoundReplicaIsEnough) {
  for (const size_t sound : {0, 1, 2}) {
    for (const size_t i : {0, 1, 2}) {
      if (i != sound) damage(i);
    }
    EXPECT_TRUE(world_.read((sound + 1) % 3, kA) == "(corrupt)") << sound;
    for (const size_t i : {0, 1, 2}) EXPECT_TRUE(repaired(i)) << sound << " " << i;
  }
  EXPECT_TRUE(world_.failures.empty());
}

TEST_F(RepairTest, WithoutAnyItStaysDamagedAndSaysSo) {
  for (const size_t i : {0, 1, 2}) damage(i);
  for (int round = 0; round < 3; round++) {
    for (const size_t i : {0, 1, 2}) EXPECT_TRUE(world_.read(i, kA) == "(corrupt)") << i;
    world_.sim.run_for(30 * kSecond);
  }
  EXPECT_EQ(version(0), 1u);
  EXPECT_TRUE(world_.failures.empty());
  // A full overwrite does not need the old content.
  chunk::UpdateType whole = chunk::UpdateType::replace;
  EXPECT_TRUE(world_.write(0, {.id = kA, .type = whole, .data = "new"}).ok());
  for (const size_t i : {0, 1, 2}) EXPECT_EQ(world_.read(i, kA), "new");
}

TEST_F(RepairTest, ACopyFromADamagedReplicaGetsWhatOthersHave) {
  world_.kill(2);
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world_.write(0, {.id = kA, .data = "x", .offset = 99'999}).ok());
  damage(1);  // the copying target
  world_.bring_back(2);
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(2); }));
  world_.set({TargetState::serving, TargetState::serving, TargetState::serving});
  const std::string expected = text_.substr(0, 99'999) + "x";
  EXPECT_TRUE(world_.eventually([&] { return world_.read(2, kA) == expected; }));
  world_.sim.run_for(kSecond);
  world_.expect_equal(0, 2);
  EXPECT_TRUE(world_.failures.empty());
}

// The target serves all other chunks, and the intact units of this one.
TEST_F(RepairTest, WhatNobodyHasKeepsNoTargetFromComingBack) {
  world_.kill(2);
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world_.write(0, {.id = kA, .data = "x", .offset = 99'999}).ok());
  ASSERT_TRUE(world_.write(0, {.id = {1, 1}, .data = "other"}).ok());
  damage(0);
  damage(1);
  world_.bring_back(2);
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(2); }));
  world_.set({TargetState::serving, TargetState::serving, TargetState::serving});
  world_.expect_equal(0, 2);
  EXPECT_EQ(world_.read(2, {1, 1}), "other");
  EXPECT_TRUE(world_.read(2, kA) == "(corrupt)");
  const auto end = world_.run(world_.get(2, kA, 65'536, 40'000));
  ASSERT_TRUE(io::ok(end));
  EXPECT_TRUE(*end == text_.substr(65'536, 34'463) + "x");
  EXPECT_TRUE(world_.failures.empty());
}

// Both replicas are intact but different.
TEST_F(RepairTest, AReplicaThatDiffersFromTheOneBeforeGoes) {
  const auto compare = [&] {
    for (const size_t i : {0, 1, 2}) world_.replica(i).start_compare();
    world_.sim.run_for(kSecond);
  };
  std::optional<Result<wire::WriteReply>> beside;
  world_.nodes[2]->disk.set_slow(300 * kMillisecond);
  world_.begin(world_.send(0, {.id = kA, .data = "beside"}), beside);
  ASSERT_TRUE(world_.write(0, {.id = {1, 1}, .data = "to go"}).ok());
  ASSERT_TRUE(world_.write(0, {.id = {1, 1}, .type = chunk::UpdateType::remove}).ok());
  compare();
  EXPECT_TRUE(world_.failures.empty()) << world_.failures.front();
  ASSERT_TRUE(world_.eventually([&] { return beside.has_value(); }));

  const std::string other = "other";
  const chunk::ChunkCopy install{.target = world_.target(2),
                                 .id = kA,
                                 .state = {.version = version(0),
                                           .length = other.size(),
                                           .checksum = simd::crc32c(as_bytes(other))},
                                 .chain_version = world_.version(),
                                 .data = as_bytes(other)};
  ASSERT_TRUE(io::ok(world_.run(world_.store(2).install(install))));
  compare();
  ASSERT_EQ(world_.failures.size(), 1u);
  EXPECT_NE(world_.failures[0].find("n3: chunk 1.0"), std::string::npos) << world_.failures[0];
  // Chunks that only one target has.
  world_.failures.clear();
  ASSERT_TRUE(io::ok(world_.run(world_.store(1).erase(world_.target(1), kA))));
  compare();
  ASSERT_FALSE(world_.failures.empty());
  EXPECT_NE(world_.failures[0].find("n2: chunk 1.0"), std::string::npos) << world_.failures[0];
}

// As on a disk that lost a block file: the metadata references missing data.
class LostFilesTest : public RepairTest {
 protected:
  void SetUp() override {
    ASSERT_TRUE(world_.write(0, {.id = kOther, .data = other_}).ok());
    ASSERT_TRUE(io::ok(world_.run(world_.ask_sync(0))));
  }
  void lose_files(size_t i) {
    for (const char* const name : {"/disk/128KiB.data", "/disk/128KiB.crc"}) {
      ASSERT_TRUE(io::ok(world_.nodes[i]->disk.remove(name)));
    }
  }
  bool sound(size_t i) { return world_.store(i).list_damaged(world_.target(i), {}, 1).empty(); }
  // The only serving target has everything.
  void expect_whole(size_t i) {
    std::vector<TargetState> states(3, TargetState::offline);
    states[i] = TargetState::serving;
    for (size_t at = 0; at < 3; at++) {
      if (at != i && world_.lives(at)) world_.kill(at);
    }
    world_.set(states);
    EXPECT_TRUE(world_.eventually([&] { return world_.read(i, kA) == text_; }));
    EXPECT_TRUE(world_.read(i, kOther) == other_);
  }

  static constexpr ChunkId kOther{1, 1};
  const std::string other_ = text_of(2, 90'000);
};

TEST_F(LostFilesTest, WhatIsLostIsCopiedBeforeTheTargetServes) {
  world_.kill(2);
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  lose_files(2);
  world_.bring_back(2);
  EXPECT_FALSE(sound(2));
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(2); }));
  EXPECT_TRUE(sound(2));
  world_.set({TargetState::serving, TargetState::serving, TargetState::serving});
  world_.expect_equal(0, 2);
  EXPECT_EQ(version(2), 1u) << "copied, not written anew by the chain";
  expect_whole(2);
}

// Each replica has units intact that the other has damaged.
TEST_F(LostFilesTest, WhoeverServedLastWithoutItGetsItFromTheOthersOnceTheyServe) {
  for (const size_t i : {2, 1, 0}) world_.kill(i);
  world_.set({TargetState::lastsrv, TargetState::offline, TargetState::offline});
  lose_files(0);
  world_.start(0);
  world_.tell(0);
  world_.set({TargetState::serving, TargetState::offline, TargetState::offline});
  EXPECT_TRUE(world_.eventually([&] { return world_.read(0, kA) == "(corrupt)"; }));
  world_.sim.run_for(60 * kSecond);
  EXPECT_FALSE(sound(0)) << "there is nobody to ask";
  world_.bring_back(1);
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(1); }));
  EXPECT_TRUE(sound(1));
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  EXPECT_TRUE(world_.eventually([&] { return sound(0); })) << "nobody has read";
  expect_whole(0);
}

// A scrub starts with the process, possibly long before the target serves.
TEST_F(RepairTest, WhatIsFoundBeforeTheTargetServesIsRepairedThen) {
  for (const size_t i : {2, 1, 0}) world_.kill(i);
  world_.set({TargetState::lastsrv, TargetState::offline, TargetState::offline});
  world_.start(0);
  damage(0);
  world_.replica(0).report_damaged(kA);
  world_.sim.run_for(60 * kSecond);
  world_.tell(0);
  world_.set({TargetState::serving, TargetState::offline, TargetState::offline});
  world_.bring_back(1);
  ASSERT_TRUE(world_.eventually([&] { return world_.copied(1); }));
  world_.set({TargetState::serving, TargetState::serving, TargetState::offline});
  EXPECT_TRUE(world_.eventually(
      [&] { return world_.store(0).list_damaged(world_.target(0), {}, 1).empty(); }));
  EXPECT_TRUE(world_.read(0, kA) == text_);
}

TEST_F(RepairTest, UpdatesGoOnBesideIt) {
  damage(2);
  std::optional<Result<wire::WriteReply>> first, second;
  EXPECT_TRUE(world_.read(2, kA) == "(corrupt)");
  world_.begin(world_.send(0, {.id = kA, .data = "one", .offset = 0}), first);
  world_.begin(world_.send(0, {.id = kA, .data = "two", .offset = 50'000}), second);
  ASSERT_TRUE(world_.eventually([&] { return first && second; }));
  EXPECT_TRUE(io::ok(*first));
  EXPECT_TRUE(io::ok(*second));
  std::string expected = text_;
  expected.replace(0, 3, "one").replace(50'000, 3, "two");
  for (const size_t i : {0, 1, 2}) {
    EXPECT_TRUE(world_.eventually([&] { return world_.read(i, kA) == expected; })) << i;
  }
  EXPECT_TRUE(world_.failures.empty());
}

}  // namespace
}  // namespace ff::chain

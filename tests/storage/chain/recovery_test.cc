// Targets that return: as lastsrv with their data, or behind others with a copy. And the guarantees
// of a sync.
#include <gtest/gtest.h>

#include <map>

#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

using chunk::ChunkId;
using chunk::UpdateType;

constexpr ChunkId kC{1, 2};
constexpr ChunkId kD{1, 3};

TEST(RecoveryTest, ATargetThatComesBackGetsWhatItMissed) {
  ChainWorld world(2);
  const auto writer = world.new_request_id();
  for (const ChunkId id : {kA, kB, kC}) {
    ASSERT_TRUE(world.write(0, {.id = id, .data = text_of(id.index, 70'000)}).ok());
  }
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.write(0, {.id = kB, .data = "changed", .offset = 100}).ok());
  ASSERT_TRUE(world.write(0, {.id = kC, .type = UpdateType::remove}).ok());
  ASSERT_TRUE(world.write(0, {.id = kD, .data = "new", .request_id = writer}).ok());
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.set({TargetState::serving, TargetState::serving});
  world.expect_equal(0, 1);
  std::string b = text_of(1, 70'000);
  b.replace(100, 7, "changed");
  EXPECT_TRUE(world.read(1, kA) == text_of(0, 70'000));
  EXPECT_TRUE(world.read(1, kB) == b);
  EXPECT_EQ(world.read(1, kC), "(not_found)");
  // It also knows the channel results.
  world.kill(0);
  world.set({TargetState::offline, TargetState::serving});
  EXPECT_EQ(world.write(1, {.id = kD, .data = "new", .request_id = writer})->image().version(), 1u);
  EXPECT_EQ(world.write(1, {.id = kC, .data = "again"})->image().version(), 3u);
}

// Otherwise it would reject updates that may have been committed and read.
TEST(RecoveryTest, WhoHasNoRoomForAnUpdateWhileItIsCopiedToLeaves) {
  ChainWorld world(2);
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  world.nodes[1]->disk.set_capacity(3 * chunk::kLogSegmentBytes);  // no group of blocks fits
  world.bring_back(1);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kB, .data = text_of(1, 70'000)}), done);
  ASSERT_TRUE(world.eventually([&] { return world.nodes[1]->broken; }));
  EXPECT_NE(world.failures[0].find("full"), std::string::npos) << world.failures[0];
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  EXPECT_TRUE(io::ok(*done));
}

TEST(RecoveryTest, WhoHasNoRoomForTheCopyLeaves) {
  ChainWorld world(2);
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.write(0, {.id = kA, .data = text_of(1, 70'000)}).ok());
  world.nodes[1]->disk.set_capacity(3 * chunk::kLogSegmentBytes);  // no group of blocks fits
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.nodes[1]->broken; }));
  EXPECT_NE(world.failures[0].find("full"), std::string::npos) << world.failures[0];
}

// A target that is promoted while it stores a replacement as a syncing target: the next target that
// returns must get it too.
TEST(RecoveryTest, WhatIsBeingStoredAtAPromotionIsCopiedOn) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.set({TargetState::serving, TargetState::offline, TargetState::offline});
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.nodes[1]->disk.set_slow(2 * kSecond);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kA, .data = "two"}), done);
  const auto pending = [&] { return world.store(0).state(world.target(0), kA)->pending; };
  ASSERT_TRUE(world.eventually([&] { return pending().has_value(); }));
  world.sim.run_for(10 * kMillisecond);
  world.tell(2);
  world.set({TargetState::serving, TargetState::serving, TargetState::waiting});
  world.change_one(2, TargetState::syncing);
  ASSERT_TRUE(world.eventually([&] { return world.copied(2); }));
  world.set({TargetState::serving, TargetState::serving, TargetState::serving});
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "three"}).ok());
  world.expect_equal(0, 2);
  EXPECT_EQ(world.read(2, kA), "three");
}

// A sole target commits updates without forwarding: a copy must wait for them.
TEST(RecoveryTest, WhatIsBeingCommittedWhenACopyBeginsIsCopied) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.set({TargetState::serving, TargetState::offline});
  world.nodes[0]->disk.set_slow(2 * kSecond);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kA, .data = "two"}), done);
  world.sim.run_for(10 * kMillisecond);
  ASSERT_FALSE(done);
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  ASSERT_TRUE(io::ok(*done));
  world.set({TargetState::serving, TargetState::serving});
  world.expect_equal(0, 1);
  EXPECT_EQ(world.read(1, kA), "two");
}

// Chunks that only the syncing target has are erased, whatever their version.
TEST(RecoveryTest, WhatOnlyTheReturningTargetHasGoes) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  const auto alone = [&](ChunkId id, std::string_view text, int times) {
    for (int i = 0; i < times; i++) {
      const chunk::Update update{
          .target = world.target(1),
          .id = id,
          .version = world.store(1).state(world.target(1), id)->committed.version + 1,
          .request_id = world.new_request_id(),
          .type = UpdateType::replace,
          .data = as_bytes(text),
          .chunk_size = kChunkSize};
      ASSERT_TRUE(io::ok(world.run(world.store(1).write(update))));
      ASSERT_TRUE(io::ok(
          world.run(world.store(1).commit(update.target, id, update.version, world.version()))));
    }
  };
  alone(kB, "never", 1);
  alone(kA, "other", 5);
  const chunk::Update doubtful{.target = world.target(1),
                               .id = kC,
                               .version = 1,
                               .request_id = world.new_request_id(),
                               .type = UpdateType::replace,
                               .data = as_bytes("doubtful"),
                               .chunk_size = kChunkSize};
  ASSERT_TRUE(io::ok(world.run(world.store(1).write(doubtful))));
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.expect_equal(0, 1);
  EXPECT_EQ(world.store(1).list(world.target(1), {}, 10)->size(), 1u);
  const auto results = [&](size_t i) {
    return world.store(i).channel_results(world.target(i))->size();
  };
  EXPECT_EQ(results(1), results(0));
}

TEST(RecoveryTest, UpdatesGoOnWhileATargetIsCopiedTo) {
  ChainWorld world(2);
  constexpr uint64_t kChunks = 60;
  std::map<uint64_t, std::string> truth;
  for (uint64_t i = 0; i < kChunks; i++) {
    truth[i] = text_of(i, 20'000);
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = truth[i]}).ok());
  }
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  for (uint64_t i = 0; i < kChunks; i += 2) {
    truth[i].replace(50, 3, "xyz");
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = "xyz", .offset = 50}).ok());
  }
  world.nodes[0]->live->limiter.set_rate(300'000);  // the copy takes a while
  world.bring_back(1);
  uint64_t during = 0;
  for (uint64_t n = 0; !world.copied(1); n++) {
    ASSERT_LT(n, 5000u);
    const uint64_t i = world.rng.below(kChunks + 20);
    const std::string text = fmt::format("update {}", n);
    if (n % 7 == 0) {
      truth.erase(i);
      ASSERT_TRUE(world.write(0, {.id = {1, i}, .type = UpdateType::remove}).ok());
    } else {
      std::string& is = truth[i];
      if (is.size() < 10 + text.size()) is.resize(10 + text.size());
      is.replace(10, text.size(), text);
      const auto wrote = world.write(0, {.id = {1, i}, .data = text, .offset = 10});
      ASSERT_TRUE(wrote.ok()) << wrote.error().message;
    }
    if (!world.copied(1)) during++;
    world.sim.run_for(kMillisecond);
  }
  EXPECT_GT(during, 20u);
  world.set({TargetState::serving, TargetState::serving});
  world.expect_equal(0, 1);
  for (uint64_t i = 0; i < kChunks + 20; i++) {
    const bool there = truth.contains(i);
    EXPECT_TRUE(world.read(1, {1, i}) == (there ? truth[i] : "(not_found)")) << i;
  }
}

TEST(RecoveryTest, ACopyBeginsAnewWhenOneOfTheTwoRestarts) {
  ChainWorld world(3);
  for (uint64_t i = 0; i < 30; i++) {
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = text_of(i, 20'000)}).ok());
  }
  world.kill(2);
  world.set({TargetState::serving, TargetState::serving, TargetState::offline});
  for (uint64_t i = 0; i < 30; i++) {
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = "new"}).ok());
  }
  world.nodes[1]->live->limiter.set_rate(100'000);
  world.bring_back(2);
  world.sim.run_for(kSecond);
  ASSERT_FALSE(world.copied(2));
  world.kill(2);
  world.set({TargetState::serving, TargetState::serving, TargetState::offline});
  world.bring_back(2);
  world.sim.run_for(kSecond);
  ASSERT_FALSE(world.copied(2));
  // Its predecessor is now the tail: the head continues with it.
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline, TargetState::waiting});
  world.set({TargetState::serving, TargetState::offline, TargetState::syncing});
  ASSERT_TRUE(world.eventually([&] { return world.copied(2); }));
  world.expect_equal(0, 2);
}

TEST(RecoveryTest, TheLastThatServedCarriesOnWhatWasPending) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  const auto writer = world.new_request_id();
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two", .request_id = writer}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  const uint64_t before = world.replica(0).verifier();
  world.kill(0);
  world.set({TargetState::lastsrv, TargetState::offline});
  world.start(0);
  world.tell(0);
  EXPECT_EQ(world.read(0, kA), "(stale)");
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.read(0, kA), "two");
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two", .request_id = writer})->image().version(), 2u);
  EXPECT_EQ(world.replica(0).verifier(), before);  // a process crash loses nothing
}

// A process that was offline and returns as the only target: its pending updates are resolved.
TEST(RecoveryTest, TheLastThatServedNeedNotHaveRestarted) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  world.set({TargetState::lastsrv, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
  EXPECT_EQ(wrote->error().code, Errc::stale);
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.read(0, kA), "two");
}

TEST(RecoveryTest, WhatWasSyncedOutlivesALossOfPowerEverywhere) {
  ChainWorld world(3);
  const auto wrote = world.write(0, {.id = kA, .data = "synced"});
  ASSERT_TRUE(wrote.ok());
  const auto synced = world.run(world.ask_sync(0));
  ASSERT_TRUE(synced.ok()) << synced.error().message;
  EXPECT_EQ(*synced, wrote->verifier());
  ASSERT_TRUE(world.write(0, {.id = kB, .data = "not synced"}).ok());
  for (size_t i = 0; i < 3; i++) world.power_loss(i);
  world.set({TargetState::offline, TargetState::offline, TargetState::lastsrv});
  world.start(2);
  world.tell(2);
  world.set({TargetState::offline, TargetState::offline, TargetState::serving});
  ASSERT_TRUE(world.eventually([&] { return world.replica(2).ready(); }));
  EXPECT_EQ(world.read(2, kA), "synced");
  // Clients that wrote before the loss see it at the next sync.
  const auto after = world.run(world.ask_sync(2));
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_NE(*after, *synced);
  // The other targets get the verifier with the copy.
  world.bring_back(0);
  ASSERT_TRUE(world.eventually([&] { return world.copied(0); }));
  world.set({TargetState::serving, TargetState::offline, TargetState::serving});
  world.expect_equal(0, 2);
  EXPECT_EQ(world.replica(0).verifier(), *after);
  EXPECT_EQ(world.run(world.ask_sync(2)).value(), *after);
}

TEST(RecoveryTest, ASyncThatMissesATargetFails) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(2);
  std::optional<Result<uint64_t>> synced;
  world.begin(world.ask_sync(0), synced);
  world.sim.run_for(2 * kSecond);
  world.set({TargetState::serving, TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return synced.has_value(); }, kSecond));
  EXPECT_FALSE(synced->ok());
  EXPECT_TRUE(world.run(world.ask_sync(0)).ok());
}

// A cancelled operation is no failure of the disk.
TEST(RecoveryTest, AStepThatIsGivenUpFailsNoTarget) {
  ChainWorld world(2);
  for (uint64_t i = 0; i < 20; i++) {
    ASSERT_TRUE(world.eventually([&] {
      return world.write(0, {.id = {1, i}, .data = text_of(i, 5000)}).ok();
    }));
    std::vector<std::optional<Result<uint64_t>>> synced(8);
    for (auto& one : synced) world.begin(world.ask_sync(0), one);
    world.sim.run_for(static_cast<int64_t>(i) * 50 * kMicrosecond);
    world.net.break_connections(1);
    ASSERT_TRUE(world.eventually([&] {
      return std::ranges::all_of(synced, [](const auto& one) { return one.has_value(); });
    }));
  }
  EXPECT_TRUE(world.failures.empty()) << world.failures[0];
  EXPECT_TRUE(world.eventually([&] { return world.run(world.ask_sync(0)).ok(); }));
}

// A possible loss is reported even if the process crashes repeatedly before it can report it.
TEST(RecoveryTest, ALossIsToldAfterAnotherRestart) {
  ChainWorld world(2);
  const auto wrote = world.write(0, {.id = kA, .data = "one"});
  ASSERT_TRUE(wrote.ok());
  for (size_t i = 0; i < 2; i++) world.power_loss(i);
  world.set({TargetState::lastsrv, TargetState::offline});
  world.start(0);
  world.kill(0);
  world.start(0);
  world.tell(0);
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  const uint64_t after = world.replica(0).verifier();
  EXPECT_NE(after, wrote->verifier());
  // Once.
  world.kill(0);
  world.set({TargetState::lastsrv, TargetState::offline});
  world.start(0);
  world.tell(0);
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.replica(0).verifier(), after);
}

// After the promotion of an incomplete target, absent chunks are not holes.
TEST(RecoveryTest, WhatIsMissingIsAnErrorAndNotZeros) {
  ChainWorld world(1);
  const auto wrote = world.write(0, {.id = {5, 0}, .data = "kept"});
  ASSERT_TRUE(wrote.ok());
  EXPECT_EQ(world.read(0, {5, 1}), "(not_found)");
  cluster::Chain& chain = world.truth.chains.at(kChain);
  chain.missing_below = 10;
  chain.lost_version = chain.version + 1;
  world.set({TargetState::serving});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.read(0, {5, 0}), "kept");
  EXPECT_EQ(world.read(0, {5, 1}), "(corrupt)");
  EXPECT_EQ(world.read(0, {12, 1}), "(not_found)");  // of a newer file
  // The verifier tells clients that synced the lost data.
  EXPECT_NE(world.write(0, {.id = {5, 0}, .data = "new"})->verifier(), wrote->verifier());
  EXPECT_NE(*world.run(world.ask_sync(0)), wrote->verifier());
  // A partial write would turn the rest into zeros; a full write or a removal is fine.
  EXPECT_EQ(world.write(0, {.id = {5, 1}, .data = "part", .offset = 9}).error().code,
            Errc::corrupt);
  EXPECT_EQ(world.read(0, {5, 1}), "(corrupt)");
  const std::string whole = text_of(1, kChunkSize);
  EXPECT_TRUE(io::ok(world.write(0, {.id = {5, 1}, .data = whole})));
  EXPECT_TRUE(world.read(0, {5, 1}) == whole);
  EXPECT_TRUE(io::ok(world.write(0, {.id = {5, 2}, .type = UpdateType::remove})));
  EXPECT_EQ(world.read(0, {5, 2}), "(not_found)");
  EXPECT_TRUE(io::ok(world.write(0, {.id = {12, 0}, .data = "part", .offset = 9})));
}

// A target that was set aside while serving: another one replaces it, and it keeps its data.
TEST(RecoveryTest, ATargetThatLeavesItsChainEndsWhatIsUnderWay) {
  ChainWorld world(2);
  world.net.block("n1", "n2");
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  cluster::Chain& chain = world.truth.chains.at(kChain);
  chain.targets[0] = {.id = 999, .node = 1, .disk = 1};
  chain.targets[1].state = TargetState::lastsrv;
  std::ranges::stable_sort(chain.targets, {}, &cluster::Target::state);
  chain.version++;
  chain.changed = ++world.truth.version;
  world.tell_all();
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).running_tasks() == 0; }));
  EXPECT_FALSE(world.replica(0).ready());
  EXPECT_TRUE(world.store(0).state(world.target(0), kA)->pending.has_value());
}

// No operation of a removed target may use its chunk store.
TEST(RecoveryTest, ClosingEndsWhatIsUnderWay) {
  ChainWorld world(2);
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  EXPECT_GT(world.replica(0).running_tasks(), 0u);
  world.run(world.replica(0).close());
  EXPECT_EQ(world.replica(0).running_tasks(), 0u);
  EXPECT_TRUE(world.store(0).state(world.target(0), kA)->pending.has_value());
}

}  // namespace
}  // namespace ff::chain

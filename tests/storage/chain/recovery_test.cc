// Targets that come back: as the last that served, with what they had; behind others, with a copy.
// And what a sync promises.
#include <gtest/gtest.h>

#include <map>

#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

using chunk::Change;
using chunk::ChunkId;

constexpr ChunkId kC{1, 2};
constexpr ChunkId kD{1, 3};

TEST(RecoveryTest, ATargetThatComesBackGetsWhatItMissed) {
  ChainWorld world(2);
  const auto writer = world.new_writer();
  for (const ChunkId id : {kA, kB, kC}) {
    ASSERT_TRUE(world.write(0, {.id = id, .data = text_of(id.index, 70'000)}).ok());
  }
  world.kill(1);
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.write(0, {.id = kB, .data = "changed", .offset = 100}).ok());
  ASSERT_TRUE(world.write(0, {.id = kC, .change = Change::remove}).ok());
  ASSERT_TRUE(world.write(0, {.id = kD, .data = "new", .writer = writer}).ok());
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.set({State::serving, State::serving});
  world.expect_equal(0, 1);
  std::string b = text_of(1, 70'000);
  b.replace(100, 7, "changed");
  EXPECT_TRUE(world.read(1, kA) == text_of(0, 70'000));
  EXPECT_TRUE(world.read(1, kB) == b);
  EXPECT_EQ(world.read(1, kC), "(not_found)");
  // It also knows what was done already.
  world.kill(0);
  world.set({State::offline, State::serving});
  EXPECT_EQ(world.write(1, {.id = kD, .data = "new", .writer = writer})->image().version(), 1u);
  EXPECT_EQ(world.write(1, {.id = kC, .data = "again"})->image().version(), 3u);
}

// It would have everybody's updates refused, of which some may have been seen already.
TEST(RecoveryTest, WhoHasNoRoomForAnUpdateWhileItIsCopiedToLeaves) {
  ChainWorld world(2);
  world.kill(1);
  world.set({State::serving, State::offline});
  world.nodes[1]->disk.set_capacity(100 * kKiB);
  world.bring_back(1);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kB, .data = text_of(1, 70'000)}), done);
  ASSERT_TRUE(world.eventually([&] { return world.nodes[1]->broken; }));
  EXPECT_NE(world.failures[0].find("full"), std::string::npos) << world.failures[0];
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  EXPECT_TRUE(io::ok(*done));
}

TEST(RecoveryTest, WhoHasNoRoomForTheCopyLeaves) {
  ChainWorld world(2);
  world.kill(1);
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.write(0, {.id = kA, .data = text_of(1, 70'000)}).ok());
  world.nodes[1]->disk.set_capacity(100 * kKiB);
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.nodes[1]->broken; }));
  EXPECT_NE(world.failures[0].find("full"), std::string::npos) << world.failures[0];
}

// A target that is promoted while it stores what it was sent as the one that is copied to: the next
// that comes back gets that from it too.
TEST(RecoveryTest, WhatIsBeingStoredAtAPromotionIsCopiedOn) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.set({State::serving, State::offline, State::offline});
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.nodes[1]->disk.set_slow(2 * kSecond);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kA, .data = "two"}), done);
  const auto pending = [&] { return world.store(0).state(world.target(0), kA)->pending; };
  ASSERT_TRUE(world.eventually([&] { return pending().has_value(); }));
  world.sim.run_for(10 * kMillisecond);
  world.tell(2);
  world.set({State::serving, State::serving, State::waiting});
  world.change_one(2, State::syncing);
  ASSERT_TRUE(world.eventually([&] { return world.copied(2); }));
  world.set({State::serving, State::serving, State::serving});
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "three"}).ok());
  world.expect_equal(0, 2);
  EXPECT_EQ(world.read(2, kA), "three");
}

// What the only target commits as it is stored was passed on to nobody: a copy waits for it.
TEST(RecoveryTest, WhatIsBeingCommittedWhenACopyBeginsIsCopied) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.set({State::serving, State::offline});
  world.nodes[0]->disk.set_slow(2 * kSecond);
  std::optional<Result<wire::WriteReply>> done;
  world.begin(world.send(0, {.id = kA, .data = "two"}), done);
  world.sim.run_for(10 * kMillisecond);
  ASSERT_FALSE(done);
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  ASSERT_TRUE(world.eventually([&] { return done.has_value(); }));
  ASSERT_TRUE(io::ok(*done));
  world.set({State::serving, State::serving});
  world.expect_equal(0, 1);
  EXPECT_EQ(world.read(1, kA), "two");
}

// What it has that its predecessor has not is gone, or never was: of any version.
TEST(RecoveryTest, WhatOnlyTheReturningTargetHasGoes) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  const auto alone = [&](ChunkId id, std::string_view text, int times) {
    for (int i = 0; i < times; i++) {
      const chunk::Update update{
          .target = world.target(1),
          .id = id,
          .version = world.store(1).state(world.target(1), id)->committed.version + 1,
          .writer = world.new_writer(),
          .change = Change::replace,
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
                               .writer = world.new_writer(),
                               .change = Change::replace,
                               .data = as_bytes("doubtful"),
                               .chunk_size = kChunkSize};
  ASSERT_TRUE(io::ok(world.run(world.store(1).write(doubtful))));
  world.kill(1);
  world.set({State::serving, State::offline});
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.expect_equal(0, 1);
  EXPECT_EQ(world.store(1).list(world.target(1), {}, 10)->size(), 1u);
  const auto results = [&](size_t i) { return world.store(i).results(world.target(i))->size(); };
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
  world.set({State::serving, State::offline});
  for (uint64_t i = 0; i < kChunks; i += 2) {
    truth[i].replace(50, 3, "xyz");
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = "xyz", .offset = 50}).ok());
  }
  world.nodes[0]->live->pace.set_rate(300'000);  // the copy takes a while
  world.bring_back(1);
  uint64_t during = 0;
  for (uint64_t n = 0; !world.copied(1); n++) {
    ASSERT_LT(n, 5000u);
    const uint64_t i = world.rng.below(kChunks + 20);
    const std::string text = fmt::format("update {}", n);
    if (n % 7 == 0) {
      truth.erase(i);
      ASSERT_TRUE(world.write(0, {.id = {1, i}, .change = Change::remove}).ok());
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
  world.set({State::serving, State::serving});
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
  world.set({State::serving, State::serving, State::offline});
  for (uint64_t i = 0; i < 30; i++) {
    ASSERT_TRUE(world.write(0, {.id = {1, i}, .data = "new"}).ok());
  }
  world.nodes[1]->live->pace.set_rate(100'000);
  world.bring_back(2);
  world.sim.run_for(kSecond);
  ASSERT_FALSE(world.copied(2));
  world.kill(2);
  world.set({State::serving, State::serving, State::offline});
  world.bring_back(2);
  world.sim.run_for(kSecond);
  ASSERT_FALSE(world.copied(2));
  // Now its predecessor: the head goes on with it.
  world.kill(1);
  world.set({State::serving, State::offline, State::waiting});
  world.set({State::serving, State::offline, State::syncing});
  ASSERT_TRUE(world.eventually([&] { return world.copied(2); }));
  world.expect_equal(0, 2);
}

TEST(RecoveryTest, TheLastThatServedCarriesOnWhatWasPending) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  const auto writer = world.new_writer();
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two", .writer = writer}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  const uint64_t before = world.replica(0).verifier();
  world.kill(0);
  world.set({State::lastsrv, State::offline});
  world.start(0);
  world.tell(0);
  EXPECT_EQ(world.read(0, kA), "(stale)");
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.read(0, kA), "two");
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two", .writer = writer})->image().version(), 2u);
  EXPECT_EQ(world.replica(0).verifier(), before);  // a process that ends loses nothing
}

// A live process that was out, alone, and is back: what it gave up meanwhile is carried on.
TEST(RecoveryTest, TheLastThatServedNeedNotHaveRestarted) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  world.set({State::lastsrv, State::offline});
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
  EXPECT_EQ(wrote->error().code, Errc::stale);
  world.set({State::serving, State::offline});
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
  for (size_t i = 0; i < 3; i++) world.lose_power(i);
  world.set({State::offline, State::offline, State::lastsrv});
  world.start(2);
  world.tell(2);
  world.set({State::offline, State::offline, State::serving});
  ASSERT_TRUE(world.eventually([&] { return world.replica(2).ready(); }));
  EXPECT_EQ(world.read(2, kA), "synced");
  // Who wrote before the loss is told so by the next sync.
  const auto after = world.run(world.ask_sync(2));
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_NE(*after, *synced);
  // The others learn of it with the copy.
  world.bring_back(0);
  ASSERT_TRUE(world.eventually([&] { return world.copied(0); }));
  world.set({State::serving, State::offline, State::serving});
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
  world.set({State::serving, State::serving, State::offline});
  ASSERT_TRUE(world.eventually([&] { return synced.has_value(); }, kSecond));
  EXPECT_FALSE(synced->ok());
  EXPECT_TRUE(world.run(world.ask_sync(0)).ok());
}

// A step that nobody waits for any more has not failed: the disk is as good as before.
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

// What may be lost is told, however often the process ends before it can tell.
TEST(RecoveryTest, ALossIsToldAfterAnotherRestart) {
  ChainWorld world(2);
  const auto wrote = world.write(0, {.id = kA, .data = "one"});
  ASSERT_TRUE(wrote.ok());
  for (size_t i = 0; i < 2; i++) world.lose_power(i);
  world.set({State::lastsrv, State::offline});
  world.start(0);
  world.kill(0);
  world.start(0);
  world.tell(0);
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  const uint64_t after = world.replica(0).verifier();
  EXPECT_NE(after, wrote->verifier());
  // Once.
  world.kill(0);
  world.set({State::lastsrv, State::offline});
  world.start(0);
  world.tell(0);
  world.set({State::serving, State::offline});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.replica(0).verifier(), after);
}

// A target that was not complete has been promoted: what is not there is no hole.
TEST(RecoveryTest, WhatIsMissingIsAnErrorAndNotZeros) {
  ChainWorld world(1);
  const auto wrote = world.write(0, {.id = {5, 0}, .data = "kept"});
  ASSERT_TRUE(wrote.ok());
  EXPECT_EQ(world.read(0, {5, 1}), "(not_found)");
  cluster::Chain& chain = world.truth.chains.at(kChain);
  chain.lost_below = 10;
  chain.lost_version = chain.version + 1;
  world.set({State::serving});
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).ready(); }));
  EXPECT_EQ(world.read(0, {5, 0}), "kept");
  EXPECT_EQ(world.read(0, {5, 1}), "(corrupt)");
  EXPECT_EQ(world.read(0, {12, 1}), "(not_found)");  // of a newer file
  // Whoever synced what was given up is told by the verifier.
  EXPECT_NE(world.write(0, {.id = {5, 0}, .data = "new"})->verifier(), wrote->verifier());
  EXPECT_NE(*world.run(world.ask_sync(0)), wrote->verifier());
  // A part of it would make zeros of the rest; all of it, or its end, is sound.
  EXPECT_EQ(world.write(0, {.id = {5, 1}, .data = "part", .offset = 9}).error().code,
            Errc::corrupt);
  EXPECT_EQ(world.read(0, {5, 1}), "(corrupt)");
  const std::string whole = text_of(1, kChunkSize);
  EXPECT_TRUE(io::ok(world.write(0, {.id = {5, 1}, .data = whole})));
  EXPECT_TRUE(world.read(0, {5, 1}) == whole);
  EXPECT_TRUE(io::ok(world.write(0, {.id = {5, 2}, .change = Change::remove})));
  EXPECT_EQ(world.read(0, {5, 2}), "(not_found)");
  EXPECT_TRUE(io::ok(world.write(0, {.id = {12, 0}, .data = "part", .offset = 9})));
}

// It was set aside while it served: another takes its place, and it keeps what it has.
TEST(RecoveryTest, ATargetThatLeavesItsChainEndsWhatIsUnderWay) {
  ChainWorld world(2);
  world.net.block("n1", "n2");
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  cluster::Chain& chain = world.truth.chains.at(kChain);
  chain.targets[0] = {.id = 999, .node = 1, .disk = 1};
  chain.targets[1].state = State::lastsrv;
  std::ranges::stable_sort(chain.targets, {}, &cluster::Target::state);
  chain.version++;
  chain.changed = ++world.truth.version;
  world.tell_all();
  ASSERT_TRUE(world.eventually([&] { return world.replica(0).running() == 0; }));
  EXPECT_FALSE(world.replica(0).ready());
  EXPECT_TRUE(world.store(0).state(world.target(0), kA)->pending.has_value());
}

// Nothing of a chunk store or of the calls may go to a target that is gone from this process.
TEST(RecoveryTest, ClosingEndsWhatIsUnderWay) {
  ChainWorld world(2);
  world.kill(1);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  EXPECT_GT(world.replica(0).running(), 0u);
  world.run(world.replica(0).close());
  EXPECT_EQ(world.replica(0).running(), 0u);
  EXPECT_TRUE(world.store(0).state(world.target(0), kA)->pending.has_value());
}

}  // namespace
}  // namespace ff::chain

// Chain replication: exactly-once updates, and reads from any target during updates and while
// targets leave and join.
#include "storage/chain/replica.h"

#include <gtest/gtest.h>

#include "storage/chain/chain_world.h"

namespace ff::chain {
namespace {

using chunk::ChunkId;
using chunk::UpdateType;

TEST(ReplicaTest, AnUpdateReachesAllTargets) {
  ChainWorld world(3);
  const std::string text = text_of(1, 100'000);
  const auto wrote = world.write(0, {.id = kA, .data = text});
  ASSERT_TRUE(wrote.ok()) << wrote.error().message;
  EXPECT_EQ(wrote->image().version(), 1u);
  EXPECT_EQ(wrote->image().length(), text.size());
  EXPECT_EQ(wrote->chain_version(), world.version());
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "over", .offset = 5000}).ok());
  ASSERT_TRUE(world.write(0, {.id = kA, .type = UpdateType::truncate, .length = 110'000}).ok());
  std::string expected = text;
  expected.replace(5000, 4, "over");
  expected.resize(110'000);
  for (size_t i = 0; i < 3; i++) EXPECT_TRUE(world.read(i, kA) == expected) << i;
  ASSERT_TRUE(world.write(0, {.id = kB, .type = UpdateType::replace, .data = "b"}).ok());
  EXPECT_EQ(world.read(2, kB), "b");
  ASSERT_TRUE(world.write(0, {.id = kA, .type = UpdateType::remove}).ok());
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(world.read(i, kA), "(not_found)") << i;
  // A chunk that is created again continues its version numbers.
  EXPECT_EQ(world.write(0, {.id = kA, .data = "new"})->image().version(), 5u);
  EXPECT_EQ(world.read(1, kA), "new");
  world.expect_equal(0, 1);
  world.expect_equal(0, 2);
}

TEST(ReplicaTest, AnUpdateThatIsSentAgainIsDoneOnce) {
  ChainWorld world(2);
  const auto writer = world.new_request_id();
  EXPECT_EQ(world.write(0, {.id = kA, .data = "one", .request_id = writer})->image().version(), 1u);
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two"})->image().version(), 2u);
  // The retry returns the original result.
  EXPECT_EQ(world.write(0, {.id = kA, .data = "one", .request_id = writer})->image().version(), 1u);
  EXPECT_EQ(world.read(0, kA), "two");
  // After a newer update of its channel it is refused.
  auto later = writer;
  later.sequence++;
  EXPECT_EQ(world.write(0, {.id = kB, .data = "three", .request_id = later})->image().version(),
            1u);
  EXPECT_EQ(world.write(0, {.id = kA, .data = "one", .request_id = writer}).error().code,
            Errc::refused);
  // The other target knows the result too: after a failover, and after a restart.
  world.kill(0);
  world.set({TargetState::offline, TargetState::serving});
  EXPECT_EQ(world.write(1, {.id = kB, .data = "three", .request_id = later})->image().version(),
            1u);
  world.kill(1);
  world.set({TargetState::offline, TargetState::lastsrv});
  world.start(1);
  world.tell(1);
  world.set({TargetState::offline, TargetState::serving});
  ASSERT_TRUE(world.eventually([&] { return world.replica(1).ready(); }));
  EXPECT_EQ(world.write(1, {.id = kB, .data = "three", .request_id = later})->image().version(),
            1u);
  EXPECT_EQ(world.write(1, {.id = kA, .data = "one", .request_id = writer}).error().code,
            Errc::refused);
  EXPECT_EQ(world.read(1, kA), "two");
}

TEST(ReplicaTest, WhatIsClearedIsDecidedWhereItLies) {
  ChainWorld world(3);
  const std::string text = text_of(1, 100'000);
  const UpdateType clear = UpdateType::punch_hole;
  ASSERT_TRUE(world.write(0, {.id = kA, .data = text}).ok());
  ASSERT_TRUE(world.write(0, {.id = kA, .type = clear, .offset = 5000, .length = 60'000}).ok());
  // A punch_hole for 100,000 bytes does not remove bytes that were appended since.
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "more", .offset = 100'000}).ok());
  EXPECT_EQ(world.write(0, {.id = kA, .type = clear, .length = 90'000})->image().version(), 4u);
  const std::string expected = std::string(90'000, '\0') + text.substr(90'000) + "more";
  for (size_t i = 0; i < 3; i++) EXPECT_TRUE(world.read(i, kA) == expected) << i;
  const auto gone = world.write(0, {.id = kA, .type = clear, .length = kChunkSize});
  EXPECT_TRUE(gone->image().removed());
  for (size_t i = 0; i < 3; i++) EXPECT_EQ(world.read(i, kA), "(not_found)") << i;
  world.expect_equal(0, 1);
  world.expect_equal(0, 2);
}

TEST(ReplicaTest, NothingIsStoredForNothing) {
  ChainWorld world(2);
  const auto rows = [&](size_t i) { return world.store(i).list(world.target(i), {}, 10)->size(); };
  const auto writer = world.new_request_id();
  const auto nothing = world.write(0, {.id = kA, .type = UpdateType::remove, .request_id = writer});
  ASSERT_TRUE(io::ok(nothing));
  EXPECT_EQ(nothing->image().version(), 0u);
  ASSERT_TRUE(io::ok(world.write(0, {.id = kB, .type = UpdateType::punch_hole, .length = 1000})));
  EXPECT_EQ(rows(0) + rows(1), 0u);
  // Already applied: a retry does not remove what was written later.
  ASSERT_TRUE(io::ok(world.write(0, {.id = kA, .data = "later"})));
  EXPECT_EQ(world.write(0, {.id = kA, .type = UpdateType::remove, .request_id = writer})
                ->image()
                .version(),
            0u);
  EXPECT_EQ(world.read(1, kA), "later");
  // The same with an outdated expected_version.
  ASSERT_TRUE(io::ok(world.write(0, {.id = kA, .data = "newer"})));
  const ChainWorld::Write late{.id = kA, .type = UpdateType::remove, .expected_version = 1};
  EXPECT_EQ(world.write(0, late)->image().version(), 2u);
  EXPECT_EQ(world.read(1, kA), "newer");
  ASSERT_TRUE(
      io::ok(world.write(0, {.id = kA, .type = UpdateType::remove, .expected_version = 2})));
  EXPECT_EQ(world.read(1, kA), "(not_found)");
  world.expect_equal(0, 1);
}

TEST(ReplicaTest, WhoMayNotBeAskedRefuses) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  const auto code = [&](size_t at, uint64_t version) {
    return world.write(at, {.id = kA, .data = "x", .version = version}).error().code;
  };
  EXPECT_EQ(code(0, world.version() - 1), Errc::stale);
  EXPECT_EQ(code(0, world.version() + 1), Errc::stale);
  EXPECT_EQ(code(1, world.version()), Errc::stale);  // not the head
  EXPECT_EQ(world.run(world.ask_last(0, 1)).error().code, Errc::stale);
  EXPECT_EQ(world.run(world.ask_last(2, 1))->chunk().index(), 0u);
  // Without a lease it answers nothing.
  world.nodes[0]->silent = true;
  world.sim.run_for(10 * kSecond);
  EXPECT_EQ(code(0, world.version()), Errc::stale);
  EXPECT_EQ(world.read(0, kA), "(stale)");
  EXPECT_EQ(world.read(1, kA), "one");
  world.nodes[0]->silent = false;
  world.tell(0);
  EXPECT_EQ(world.read(0, kA), "one");
  world.set({TargetState::serving, TargetState::serving, TargetState::offline});
  EXPECT_EQ(world.read(2, kA), "(stale)");
}

TEST(ReplicaTest, BadCallsChangeNothing) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two", .crc = 7}).error().code, Errc::busy);
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two", .offset = kChunkSize}).error().code,
            Errc::usage);
  EXPECT_EQ(world.write(0, {.id = kA, .type = static_cast<UpdateType>(9)}).error().code,
            Errc::usage);
  EXPECT_EQ(world.read(0, kA), "one");
  EXPECT_EQ(world.read(1, kA), "one");
  EXPECT_EQ(world.write(0, {.id = kA, .data = "two"})->image().version(), 2u);
  world.expect_equal(0, 1);
}

TEST(ReplicaTest, AStoredUpdateComesToItsEndWithoutItsClient) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.net.block("n1", "n2");
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->pending.has_value(); }));
  world.net.block("client", "n1");
  world.net.break_connections(0.5);
  world.sim.run_for(kSecond);
  EXPECT_TRUE(world.store(0).state(world.target(0), kA)->pending.has_value());
  world.net.unblock("n1", "n2");
  EXPECT_TRUE(world.eventually(
      [&] { return world.store(0).state(world.target(0), kA)->committed.version == 2; }));
  world.net.unblock("client", "n1");
  world.expect_equal(0, 1);
  EXPECT_EQ(world.read(1, kA), "two");
}

TEST(ReplicaTest, WhenTheTailIsGoneItsPredecessorCommits) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(2);
  std::optional<Result<wire::WriteReply>> first, second;
  world.begin(world.send(0, {.id = kA, .data = "two"}), first);
  world.begin(world.send(0, {.id = kA, .data = "three"}), second);
  world.sim.run_for(5 * kSecond);
  EXPECT_FALSE(first || second);
  world.set({TargetState::serving, TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return first && second; }, kSecond));
  EXPECT_TRUE(io::ok(*first));
  EXPECT_EQ((*first)->chain_version(), world.version());
  // The second call uses an outdated chain version.
  EXPECT_EQ(second->error().code, Errc::stale);
  EXPECT_EQ(world.read(1, kA), "two");
  world.expect_equal(0, 1);
}

TEST(ReplicaTest, WhenTheHeadIsGoneItsUpdateIsSentAgain) {
  ChainWorld world(3);
  const auto writer = world.new_request_id();
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.net.block("n2", "n1");  // its response is lost
  const ChainWorld::Write cut{.id = kA,
                              .type = UpdateType::truncate,
                              .length = 2,
                              .request_id = writer};  // it carries no data
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, cut), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(1).state(world.target(1), kA)->committed.version == 2; }));
  world.kill(0);
  world.set({TargetState::offline, TargetState::serving, TargetState::serving});
  EXPECT_EQ(world.write(1, cut)->image().version(), 2u);
  EXPECT_EQ(world.write(1, {.id = kA, .data = "three"})->image().version(), 3u);
  EXPECT_EQ(world.read(2, kA), "three");
  world.expect_equal(1, 2);
}

TEST(ReplicaTest, ReadsNeverShowWhatIsNotCommittedAtTheTail) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.net.block("n2", "n3");
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .type = UpdateType::truncate, .length = 2}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(1).state(world.target(1), kA)->pending.has_value(); }));
  EXPECT_EQ(world.read(0, kA), "one");  // asks the tail over another link
  EXPECT_EQ(world.read(2, kA), "one");
  // The tail has committed, but its response is lost: now all targets must return the new version.
  world.net.block("n3", "n2");
  world.net.unblock("n2", "n3");
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(2).state(world.target(2), kA)->committed.version == 2; }));
  EXPECT_EQ(world.store(0).state(world.target(0), kA)->committed.version, 1u);
  EXPECT_EQ(world.read(2, kA), "on");
  EXPECT_EQ(world.read(0, kA), "on");
  world.net.unblock("n3", "n2");
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
  EXPECT_TRUE(io::ok(*wrote));
}

// A version that a former tail may have returned must also be returned by the new tail.
TEST(ReplicaTest, ANewTailCommitsBeforeItAnswers) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.net.block("n2", "n1");
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .type = UpdateType::truncate, .length = 2}), wrote);
  ASSERT_TRUE(world.eventually(
      [&] { return world.store(1).state(world.target(1), kA)->committed.version == 2; }));
  EXPECT_EQ(world.read(1, kA), "on");
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  EXPECT_EQ(world.read(0, kA), "on");
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
  EXPECT_TRUE(io::ok(*wrote));
}

TEST(ReplicaTest, APromotedTargetAnswersReadsOnceAllBeforeItKnow) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(1);
  world.set({TargetState::serving, TargetState::offline});
  world.bring_back(1);
  ASSERT_TRUE(world.eventually([&] { return world.copied(1); }));
  world.nodes[1]->silent = true;
  world.set({TargetState::serving, TargetState::serving});
  world.tell(1, false);
  ASSERT_TRUE(world.eventually([&] { return world.replica(1).ready(); }));
  EXPECT_EQ(world.read(1, kA), "(stale)");
  EXPECT_EQ(world.run(world.ask_last(1, 1)).error().code, Errc::stale);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "two"}).ok());
  EXPECT_EQ(world.read(1, kA), "(stale)");
  world.tell(1, true);
  EXPECT_EQ(world.read(1, kA), "two");
}

TEST(ReplicaTest, AFullDiskRefusesAndNothingIsLeft) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.nodes[1]->disk.set_capacity(0);
  const auto refused = world.write(0, {.id = kB, .data = text_of(1, 200'000)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::disk_full) << refused.error().message;
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(world.store(i).state(world.target(i), kB).value(), chunk::ChunkState()) << i;
    EXPECT_EQ(world.read(i, kA), "one");
  }
  EXPECT_TRUE(world.failures.empty());
  world.nodes[1]->disk.set_capacity(kGiB);
  EXPECT_EQ(world.write(0, {.id = kB, .data = text_of(1, 200'000)})->image().version(), 1u);
  world.expect_equal(0, 1);
}

TEST(ReplicaTest, AFailedDiskTakesItsTargetOut) {
  ChainWorld world(3);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.nodes[1]->disk.set_fault(sim::SimOp::write, 1, EIO);
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  ASSERT_TRUE(world.eventually([&] { return !world.failures.empty(); }));
  EXPECT_NE(world.failures[0].find("n2"), std::string::npos) << world.failures[0];
  EXPECT_EQ(world.member(1).local_state(world.target(1)), cluster::LocalTargetState::offline);
  world.sim.run_for(3 * kSecond);
  EXPECT_FALSE(wrote);
  world.set({TargetState::serving, TargetState::offline, TargetState::serving});
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }, kSecond));
  EXPECT_TRUE(io::ok(*wrote));
  world.expect_equal(0, 2);
}

TEST(ReplicaTest, AnUpdateOfADamagedChunkHealsIt) {
  for (const size_t damaged : {0u, 1u}) {
    ChainWorld world(2);
    const std::string text = text_of(1, 100'000);
    ASSERT_TRUE(world.write(0, {.id = kA, .data = text}).ok());
    ASSERT_TRUE(io::ok(world.run(world.ask_sync(0))));
    world.damage(damaged, text.substr(5000, 100));
    // A partial write would have to keep the damaged bytes.
    std::optional<Result<wire::WriteReply>> wrote;
    world.begin(world.send(0, {.id = kA, .data = "x", .offset = 4990}), wrote);
    if (damaged == 0) {
      ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
      EXPECT_EQ(wrote->error().code, Errc::unreachable) << "it is repaired, then it can be";
      EXPECT_TRUE(world.failures.empty());
      EXPECT_TRUE(world.eventually([&] { return world.read(0, kA) == text; }));
      continue;
    }
    // The whole chunk is sent instead.
    ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
    EXPECT_TRUE(io::ok(*wrote));
    EXPECT_TRUE(world.failures.empty());
    EXPECT_TRUE(world.read(1, kA) == world.read(0, kA));
  }
}

Task<Result<void>> change_to(ChainWorld& world, std::vector<TargetState> states) {
  world.set(std::move(states));
  co_return Result<void>();
}

// A task that is spawned starts later, when the chain may have changed.
TEST(ReplicaTest, TheChainChangesBeforeItsNextTargetIsAsked) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  world.kill(1);
  world.nodes[0]->silent = true;  // only the test calls on_routing_change()
  std::optional<Result<wire::WriteReply>> wrote;
  world.begin(world.send(0, {.id = kA, .data = "two"}), wrote);
  world.sim.run_for(2500 * kMillisecond);
  world.replica(0).on_routing_change();
  world.nodes[0]->silent = false;
  world.set({TargetState::serving, TargetState::offline});
  ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
  EXPECT_TRUE(io::ok(*wrote));
}

TEST(ReplicaTest, TheChainChangesBeforeASyncIsPassedOn) {
  ChainWorld world(2);
  ASSERT_TRUE(world.write(0, {.id = kA, .data = "one"}).ok());
  std::optional<Result<uint64_t>> synced;
  std::optional<Result<void>> changed;
  world.begin(world.replica(0).sync(world.version()), synced);
  world.begin(change_to(world, {TargetState::offline, TargetState::serving}), changed);
  ASSERT_TRUE(world.eventually([&] { return synced.has_value(); }));
  EXPECT_EQ(synced->error().code, Errc::stale);
}

TEST(ReplicaTest, NobodyServesAnyMoreWhenDamageIsFound) {
  // The chain changes at an arbitrary point of the update.
  for (int64_t step = 0; step < 40; step++) {
    ChainWorld world(1);
    const std::string text = text_of(1, 100'000);
    ASSERT_TRUE(world.write(0, {.id = kA, .data = text}).ok());
    ASSERT_TRUE(io::ok(world.run(world.ask_sync(0))));
    world.damage(0, text.substr(5000, 100));
    std::optional<Result<wire::WriteReply>> wrote;
    world.begin(world.send(0, {.id = kA, .data = "x", .offset = 4990}), wrote);
    world.sim.run_for(step * 20 * kMicrosecond);
    world.set({TargetState::offline});
    ASSERT_TRUE(world.eventually([&] { return wrote.has_value(); }));
    EXPECT_FALSE(wrote->ok());
  }
}

TEST(ReplicaTest, TheLastChunkOfAFile) {
  ChainWorld world(2);
  for (const uint64_t index : {0, 3, 7}) {
    ASSERT_TRUE(world.write(0, {.id = {5, index}, .data = text_of(index, 100 + index)}).ok());
  }
  ASSERT_TRUE(world.write(0, {.id = {6, 1}, .data = "other"}).ok());
  auto last = world.run(world.ask_last(1, 5));
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(last->found());
  EXPECT_EQ(last->chunk().index(), 7u);
  EXPECT_EQ(last->image().length(), 107u);
  ASSERT_TRUE(world.write(0, {.id = {5, 7}, .type = UpdateType::remove}).ok());
  EXPECT_EQ(world.run(world.ask_last(1, 5))->chunk().index(), 3u);
  EXPECT_FALSE(world.run(world.ask_last(1, 4))->found());
}

}  // namespace
}  // namespace ff::chain

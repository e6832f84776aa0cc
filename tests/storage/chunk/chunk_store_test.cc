// Operations of a chunk store without faults, and their errors.
#include <gtest/gtest.h>

#include "platform/simd/crc32c.h"
#include "storage/chunk/chunk_world.h"

namespace ff::chunk {
namespace {

using io::code_of;
using io::ok;

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { world_.make(); }

  ChunkWorld world_{1};
  const ChunkId id_{.inode = 5, .index = 2};
};

TEST_F(StoreTest, APendingVersionIsSeenOnlyWhenItIsAskedForAndCommitMakesItTheOne) {
  const std::string text = bytes_of(1, 100000);
  const auto pending = world_.pend(world_.update(id_, UpdateType::write, text));
  ASSERT_TRUE(ok(pending));
  EXPECT_EQ(pending->committed.version, 0u);
  ASSERT_TRUE(pending->pending.has_value());
  EXPECT_EQ(pending->pending->state.version, 1u);
  EXPECT_EQ(pending->pending->state.length, text.size());
  EXPECT_EQ(pending->pending->state.checksum, simd::crc32c(as_bytes(text)));
  EXPECT_EQ(world_.get(id_), "(not_found)");
  EXPECT_TRUE(world_.get(id_, VersionKind::pending) == text);
  const auto done = world_.run(world_.store->commit(kTarget, id_, 1, 9));
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->committed, pending->pending->state);
  EXPECT_EQ(done->chain_version, 9u);
  EXPECT_FALSE(done->pending.has_value());
  EXPECT_TRUE(world_.get(id_) == text);
  EXPECT_EQ(world_.get(id_, VersionKind::pending), "(not_found)");
  // Repeating it has no effect.
  EXPECT_EQ(*world_.run(world_.store->commit(kTarget, id_, 1, 10)), *done);
}

TEST_F(StoreTest, ACommitThatIsRecordedSoonIsSeenAtOnceAndIsPendingAgainAfterAKill) {
  const std::string text = bytes_of(1, 100000);
  Update update = world_.update(id_, UpdateType::write, text);
  ASSERT_TRUE(ok(world_.pend(update)));
  const auto result = [&] {
    return **world_.store->channel_result(kTarget, update.request_id.client,
                                          update.request_id.channel);
  };
  EXPECT_FALSE(result().committed);
  const auto done = world_.store->commit_soon(kTarget, id_, 1, 9);
  ASSERT_TRUE(ok(done));
  EXPECT_EQ(done->committed.version, 1u);
  EXPECT_TRUE(result().committed);
  EXPECT_TRUE(world_.get(id_) == text);
  EXPECT_EQ(code_of(world_.store->commit_soon(kTarget, id_, 2, 9)), Errc::refused);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->state(kTarget, id_)->pending->state, done->committed);
  EXPECT_FALSE(result().committed);
  EXPECT_EQ(result().sequence, update.request_id.sequence);
  EXPECT_EQ(result().id, id_);
  ASSERT_TRUE(ok(world_.store->commit_soon(kTarget, id_, 1, 9)));
  world_.world.run_for(2 * kMillisecond);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->state(kTarget, id_)->committed, done->committed);
  EXPECT_TRUE(result().committed);
  // What comes after it brings it along.
  ASSERT_TRUE(ok(world_.pend(world_.update(id_, UpdateType::write, "x"))));
  ASSERT_TRUE(ok(world_.store->commit_soon(kTarget, id_, 2, 9)));
  ASSERT_TRUE(ok(world_.write({.inode = 6, .index = 0}, "other")));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->state(kTarget, id_)->committed.version, 2u);
}

TEST_F(StoreTest, SurvivesACloseAndAKill) {
  const std::string text = bytes_of(1, 100000);
  ASSERT_TRUE(ok(world_.write(id_, text)));
  world_.close();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_shutdown(), ShutdownKind::clean);
  EXPECT_TRUE(world_.get(id_) == text);
  ASSERT_TRUE(ok(world_.write(id_, "more", text.size())));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_shutdown(), ShutdownKind::process_died);
  EXPECT_TRUE(world_.get(id_) == text + "more");
  EXPECT_EQ(world_.store->rolled_back_chunks(), 0u);
}

TEST_F(StoreTest, EveryKindOfUpdateMakesTheNextVersion) {
  std::string text = bytes_of(1, 300000);
  ASSERT_TRUE(ok(world_.write(id_, text)));
  const auto expect = [&](const Result<ChunkState>& state, uint64_t version) {
    ASSERT_TRUE(ok(state));
    EXPECT_EQ(state->committed.version, version);
    EXPECT_EQ(state->committed.length, text.size());
    EXPECT_EQ(state->committed.checksum, simd::crc32c(as_bytes(text)));
    EXPECT_TRUE(world_.get(id_) == text);
    world_.kill();  // verify the state on disk
    ASSERT_TRUE(ok(world_.open()));
    EXPECT_EQ(world_.store->state(kTarget, id_)->committed, state->committed);
    EXPECT_TRUE(world_.get(id_) == text);
  };
  const std::string piece = bytes_of(2, 5000);
  text.replace(10000, piece.size(), piece);
  expect(world_.write(id_, piece, 10000), 2);
  text += piece;
  expect(world_.write(id_, piece, 300000), 3);
  text.resize(400000);
  text += piece;  // with a gap
  expect(world_.write(id_, piece, 400000), 4);
  text.resize(12345);
  expect(world_.resize(id_, 12345), 5);
  text.resize(500000);
  expect(world_.resize(id_, 500000), 6);
  expect(world_.write(id_, ""), 7);
  text = piece;
  expect(world_.replace(id_, piece), 8);
  text.clear();
  expect(world_.resize(id_, 0), 9);
  text = "after";
  expect(world_.write(id_, text), 10);
}

TEST_F(StoreTest, ManySmallOverwritesAreRightWhereverTheyFall) {
  std::string text = bytes_of(1, kMiB - 100);
  ASSERT_TRUE(ok(world_.write(id_, text)));
  SeededRng rng(3);
  for (int i = 0; i < 300; ++i) {
    const std::string piece = bytes_of(rng.next(), 1 + rng.below(9000));
    const uint64_t offset = rng.below(text.size() - piece.size());
    text.replace(offset, piece.size(), piece);
    ASSERT_TRUE(ok(world_.write(id_, piece, offset)));
    const uint64_t from = rng.below(text.size());
    ASSERT_TRUE(world_.read(id_, from, 10000) == text.substr(from, 10000)) << i;
  }
  EXPECT_TRUE(world_.get(id_) == text);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_TRUE(world_.get(id_) == text);
}

TEST_F(StoreTest, SmallOverwritesWriteLittleWithoutTheLog) {
  world_.close();
  world_.data_segments_max = 0;
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(world_.write(id_, bytes_of(1, kMiB))));
  ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  const auto used = [&] {
    uint64_t blocks = 0;
    for (const SizeClassUsage& usage : world_.store->usage()) blocks += usage.used_blocks;
    return blocks;
  };
  EXPECT_EQ(used(), 1u);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(ok(world_.write(id_, bytes_of(9, 4096), static_cast<uint64_t>(i) * 8192)));
  }
  EXPECT_EQ(used(), 2u);  // its own block and one overlay block
}

TEST_F(StoreTest, UpdatesOutOfOrderAreRefused) {
  ASSERT_TRUE(ok(world_.write(id_, "one")));
  for (const uint64_t version : {0, 1, 3}) {
    Update update = world_.update(id_, UpdateType::write, "x");
    update.version = version;
    EXPECT_EQ(code_of(world_.pend(update)), Errc::refused) << version;
  }
  Update update = world_.update(id_, UpdateType::write, "two");
  ASSERT_TRUE(ok(world_.pend(update)));
  EXPECT_EQ(code_of(world_.pend(update)), Errc::refused);
  EXPECT_EQ(code_of(world_.run(world_.store->commit(kTarget, id_, 3, 1))), Errc::refused);
  EXPECT_EQ(code_of(world_.run(world_.store->commit(kTarget, {9, 9}, 0, 1))), Errc::refused);
  EXPECT_EQ(code_of(world_.run(world_.store->drop_pending(kTarget, id_, 3))), Errc::refused);
  EXPECT_EQ(world_.get(id_), "one");
}

TEST_F(StoreTest, AnotherChecksumThanTheUpdateSaysStoresNothing) {
  Update update = world_.update(id_, UpdateType::write, "text");
  update.checksum = simd::crc32c(as_bytes("text")) ^ 1;
  EXPECT_EQ(code_of(world_.pend(update)), Errc::corrupt);
  EXPECT_EQ(*world_.store->state(kTarget, id_), ChunkState());
  EXPECT_TRUE(ok(world_.store->health()));
  update.checksum = simd::crc32c(as_bytes("text"));
  EXPECT_TRUE(ok(world_.pend(update)));
}

TEST_F(StoreTest, ADroppedPendingVersionLeavesNoTrace) {
  ASSERT_TRUE(ok(world_.write(id_, "one")));
  const Update update = world_.update(id_, UpdateType::write, "two");
  ASSERT_TRUE(ok(world_.pend(update)));
  const auto dropped = world_.run(world_.store->drop_pending(kTarget, id_, 2));
  ASSERT_TRUE(ok(dropped));
  EXPECT_FALSE(dropped->pending.has_value());
  EXPECT_FALSE(world_.store->channel_result(kTarget, 1, id_.index)->has_value());
  EXPECT_TRUE(ok(world_.write(id_, "three")));
  EXPECT_EQ(world_.get(id_), "three");
}

TEST_F(StoreTest, ARemovedChunkIsATombstoneForAWhile) {
  ASSERT_TRUE(ok(world_.write(id_, "one")));
  const auto removed = world_.remove(id_);
  ASSERT_TRUE(ok(removed));
  EXPECT_TRUE(removed->committed.removed);
  EXPECT_EQ(removed->committed.version, 2u);
  EXPECT_EQ(world_.get(id_), "(not_found)");
  const int64_t now = world_.world.clock().wall_ns();
  EXPECT_FALSE(*world_.run(world_.store->prune_results(now + kRetentionNs - kSecond)));
  EXPECT_TRUE(world_.store->expired_tombstones(kTarget, now + kRetentionNs - kSecond, 9).empty());
  EXPECT_EQ(world_.store->state(kTarget, id_)->committed.version, 2u);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_TRUE(ok(world_.write(id_, "again")));  // version numbers continue
  EXPECT_EQ(world_.store->state(kTarget, id_)->committed.version, 3u);
  ASSERT_TRUE(ok(world_.remove(id_)));
  EXPECT_FALSE(*world_.run(world_.store->prune_results(now + 2 * kRetentionNs)));
  const auto old = world_.store->expired_tombstones(kTarget, now + 2 * kRetentionNs, 9);
  EXPECT_EQ(old, std::vector{id_});
  ASSERT_TRUE(ok(world_.run(world_.store->prune_tombstones(kTarget, old))));
  EXPECT_EQ(*world_.store->state(kTarget, id_), ChunkState());
  EXPECT_TRUE(world_.store->channel_results(kTarget)->empty());
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(*world_.store->state(kTarget, id_), ChunkState());
  EXPECT_TRUE(world_.store->channel_results(kTarget)->empty());
}

TEST_F(StoreTest, ResultsOfChannelsAreKeptWithTheirUpdates) {
  const Update update = world_.update(id_, UpdateType::write, "text");
  ASSERT_TRUE(ok(world_.pend(update)));
  const auto check = [&](bool committed) {
    const auto result = world_.store->channel_result(kTarget, 1, id_.index);
    ASSERT_TRUE(result.ok() && result->has_value());
    EXPECT_EQ((*result)->sequence, update.request_id.sequence);
    EXPECT_EQ((*result)->id, id_);
    EXPECT_EQ((*result)->committed, committed);
    EXPECT_EQ((*result)->state.checksum, simd::crc32c(as_bytes("text")));
  };
  check(false);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  check(false);
  ASSERT_TRUE(ok(world_.run(world_.store->commit(kTarget, id_, 1, 1))));
  check(true);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  check(true);
  const auto all = *world_.store->channel_results(kTarget);
  ASSERT_EQ(all.size(), 1u);
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(8, 80))));
  ASSERT_TRUE(ok(world_.run(world_.store->install_channel_results(8, all))));
  EXPECT_EQ(**world_.store->channel_result(8, 1, id_.index), all[0].result);
}

TEST_F(StoreTest, InstallReplacesWhateverIsThere) {
  ASSERT_TRUE(ok(world_.write(id_, "one")));
  ASSERT_TRUE(ok(world_.pend(world_.update(id_, UpdateType::write, "two"))));
  const std::string text = bytes_of(5, 70000);
  ChunkCopy install{
      .target = kTarget,
      .id = id_,
      .state = {.version = 12, .length = text.size(), .checksum = simd::crc32c(as_bytes(text))},
      .chain_version = 4,
      .data = as_bytes(text)};
  const auto state = world_.run(world_.store->install(install));
  ASSERT_TRUE(ok(state));
  EXPECT_EQ(state->committed, install.state);
  EXPECT_FALSE(state->pending.has_value());
  EXPECT_TRUE(world_.get(id_) == text);
  install.state.checksum ^= 1;
  EXPECT_EQ(code_of(world_.run(world_.store->install(install))), Errc::corrupt);
  install.state = {.version = 13, .length = 0, .checksum = 0, .removed = true};
  install.data = {};
  ASSERT_TRUE(ok(world_.run(world_.store->install(install))));
  EXPECT_EQ(world_.get(id_), "(not_found)");
  ASSERT_TRUE(ok(world_.run(world_.store->erase(kTarget, id_))));
  EXPECT_EQ(*world_.store->state(kTarget, id_), ChunkState());
  ASSERT_TRUE(ok(world_.run(world_.store->erase(kTarget, id_))));
}

TEST_F(StoreTest, DamageIsCopiedAsWhatItIs) {
  std::string text = bytes_of(5, 70000);
  const uint32_t checksum = simd::crc32c(as_bytes(text));
  ASSERT_TRUE(ok(world_.write(id_, text)));
  ASSERT_TRUE(ok(world_.write(id_, "piece", 20000)));
  text.replace(20000, 5, "piece");
  std::string salvaged(text.size(), '?');
  const auto into = std::as_writable_bytes(std::span(salvaged));
  const auto sound = world_.run(world_.store->salvage(kTarget, id_, into));
  ASSERT_TRUE(ok(sound));
  EXPECT_TRUE(sound->empty());
  EXPECT_TRUE(salvaged == text);
  // A copy from another replica.
  const ChunkCopy install{
      .target = kTarget,
      .id = {6, 0},
      .state = {.version = 12, .length = text.size(), .checksum = checksum},
      .chain_version = 4,
      .data = as_bytes(text),
      .damaged = {{.offset = 20000, .length = 5}, {.offset = 69999, .length = 1}}};
  const auto state = world_.run(world_.store->install(install));
  ASSERT_TRUE(ok(state));
  EXPECT_EQ(state->committed, install.state);
  for (int open = 0; open < 2; open++) {
    EXPECT_EQ(world_.get({6, 0}), "(corrupt)");
    EXPECT_EQ(world_.read({6, 0}, 20000, 5), "(corrupt)");
    EXPECT_EQ(world_.read({6, 0}, 69990, 10), "(corrupt)");
    EXPECT_TRUE(world_.read({6, 0}, 40000, 1000) == text.substr(40000, 1000));
    salvaged.assign(text.size(), '?');
    const auto places = world_.run(
        world_.store->salvage(kTarget, {6, 0}, std::as_writable_bytes(std::span(salvaged))));
    ASSERT_TRUE(ok(places));
    ASSERT_EQ(places->size(), 2u);
    EXPECT_LE(places->front().offset, 20000u);
    EXPECT_GE(places->front().offset + places->front().length, 20005u);
    EXPECT_TRUE(salvaged == text);
    world_.close();
    ASSERT_TRUE(ok(world_.open()));
  }
}

TEST_F(StoreTest, ListsInOrderAndFindsTheLastChunkOfAFile) {
  for (const uint64_t index : {300, 2, 256, 1}) {
    ASSERT_TRUE(ok(world_.write({.inode = 9, .index = index}, "x")));
  }
  ASSERT_TRUE(ok(world_.write({.inode = 10, .index = 0}, "x")));
  const auto page = world_.store->list(kTarget, {.inode = 9, .index = 2}, 3);
  ASSERT_TRUE(ok(page));
  ASSERT_EQ(page->size(), 3u);
  EXPECT_EQ((*page)[0].id.index, 2u);
  EXPECT_EQ((*page)[1].id.index, 256u);
  EXPECT_EQ((*page)[2].id.index, 300u);
  const auto last = [&] { return **world_.store->last_chunk(kTarget, 9); };
  EXPECT_EQ(last().id.index, 300u);
  ASSERT_TRUE(ok(world_.remove({.inode = 9, .index = 300})));
  EXPECT_EQ(last().id.index, 256u);
  ASSERT_TRUE(ok(world_.pend(world_.update({.inode = 9, .index = 400}, UpdateType::write, "y"))));
  EXPECT_EQ(last().id.index, 400u);
  EXPECT_FALSE(world_.store->last_chunk(kTarget, 8)->has_value());
  EXPECT_FALSE(world_.store->last_chunk(kTarget, 11)->has_value());
}

TEST_F(StoreTest, TargetsAreApartAndGoWithAllTheirChunks) {
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(8, 80))));
  EXPECT_EQ(code_of(world_.run(world_.store->create_target(8, 80))), Errc::exists);
  EXPECT_EQ(code_of(world_.store->state(9, id_)), Errc::not_found);
  ASSERT_TRUE(ok(world_.write(id_, "seven")));
  Update update = world_.update(id_, UpdateType::write, "eight");
  update.target = 8;
  update.version = 1;
  ASSERT_TRUE(ok(world_.apply(update)));
  EXPECT_EQ(world_.get(id_), "seven");
  ASSERT_TRUE(ok(world_.run(world_.store->set_target_state(8, 42))));
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  ASSERT_EQ(world_.store->targets().size(), 2u);
  EXPECT_EQ(world_.store->targets()[1].chain, 80u);
  EXPECT_EQ(world_.store->targets()[1].state, 42u);
  EXPECT_EQ(world_.store->targets()[1].chunks, 1u);
  ASSERT_TRUE(ok(world_.run(world_.store->remove_target(8))));
  EXPECT_EQ(code_of(world_.store->state(8, id_)), Errc::not_found);
  world_.kill();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->targets().size(), 1u);
  EXPECT_EQ(world_.get(id_), "seven");
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(8, 80))));
  EXPECT_EQ(*world_.store->state(8, id_), ChunkState());
}

TEST_F(StoreTest, ATargetsRemovalGoesOnAfterAnEnd) {
  ASSERT_TRUE(ok(world_.run(world_.store->create_target(8, 80))));
  for (uint64_t i = 0; i < 5; ++i) {
    Update update = world_.update({.inode = i, .index = 0}, UpdateType::write, "x");
    update.target = 8;
    update.version = 1;
    ASSERT_TRUE(ok(world_.apply(update)));
  }
  for (uint64_t n = 0;; ++n) {
    SCOPED_TRACE(n);
    ASSERT_LT(n, 300u);
    world_.disk.crash_at(world_.disk.mutations() + n);
    (void)world_.run(world_.store->remove_target(8));
    const bool crashed = world_.disk.crashed();
    world_.kill();
    ASSERT_TRUE(ok(world_.open()));
    const auto targets = world_.store->targets();
    if (targets.size() == 1) break;  // removal started, and finished by open()
    EXPECT_EQ(targets[1].chunks, 5u);
    ASSERT_TRUE(crashed);
  }
}

TEST_F(StoreTest, OneChunkChangesOneStepAtATime) {
  Gate gate(world_.world.loop());
  const Update update = world_.update(id_, UpdateType::write, "x");
  std::vector<Errc> codes;
  const auto step = [](ChunkStore& store, Update what, std::vector<Errc>& into) -> Task<void> {
    into.push_back(code_of(co_await store.write(what)));
  };
  gate.spawn(step(*world_.store, update, codes));
  gate.spawn(step(*world_.store, update, codes));
  run_task(world_.world.loop(), gate.wait_empty());
  ASSERT_EQ(codes.size(), 2u);
  EXPECT_EQ(codes[0], Errc::busy);
  EXPECT_EQ(codes[1], Errc::usage);  // of code_of: it went well
}

// A reader that started before an update reads the old version, even if its blocks are freed before
// it reads them.
TEST_F(StoreTest, ReadersKeepWhatTheyRead) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    ChunkWorld world(seed);
    world.make();
    const std::string first = bytes_of(seed, 200000);
    ASSERT_TRUE(ok(world.write(id_, first)));
    Gate gate(world.world.loop());
    const auto reader = [](ChunkWorld& in, ChunkId id, const std::string& expected) -> Task<void> {
      std::string text(expected.size(), '\0');
      const ReadRequest request{.target = kTarget, .id = id};
      const ByteSpan into(reinterpret_cast<std::byte*>(text.data()), text.size());
      EXPECT_TRUE(ok(co_await in.store->read(request, into)));
      EXPECT_TRUE(text == expected);
    };
    const auto writer = [](ChunkWorld& in, Update update, std::string& data) -> Task<void> {
      for (int i = 0; i < 4; ++i, ++update.version) {
        data = bytes_of(in.rng.next(), 200000);
        update.data = as_bytes(data);
        EXPECT_TRUE(ok(co_await in.store->write(update)));
        EXPECT_TRUE(ok(co_await in.store->commit(kTarget, update.id, update.version, 1)));
        EXPECT_TRUE(ok(co_await in.store->sync()));
      }
    };
    std::string last;
    for (int i = 0; i < 5; ++i) gate.spawn(reader(world, id_, first));
    gate.spawn(writer(world, world.update(id_, UpdateType::replace, {}), last));
    run_task(world.world.loop(), gate.wait_empty());
    EXPECT_TRUE(world.get(id_) == last);
  }
}

TEST_F(StoreTest, CallersOfSyncShareOnePass) {
  ASSERT_TRUE(ok(world_.write(id_, "x")));
  const uint64_t before = world_.disk.mutations();
  ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  const uint64_t one = world_.disk.mutations() - before;
  ASSERT_TRUE(ok(world_.write(id_, "y")));
  Gate gate(world_.world.loop());
  const auto syncs = [](ChunkStore& store) -> Task<void> {
    EXPECT_TRUE(ok(co_await store.sync()));
  };
  const uint64_t again = world_.disk.mutations();
  for (int i = 0; i < 20; ++i) gate.spawn(syncs(*world_.store));
  run_task(world_.world.loop(), gate.wait_empty());
  EXPECT_LE(world_.disk.mutations() - again, 2 * one);
  // Without changes a sync does no I/O.
  const uint64_t idle = world_.disk.mutations();
  ASSERT_TRUE(ok(world_.run(world_.store->sync())));
  EXPECT_EQ(world_.disk.mutations(), idle);
}

TEST_F(StoreTest, StepsAreDurableSoonWithoutBeingAsked) {
  const std::string text = bytes_of(1, 100000);
  ASSERT_TRUE(ok(world_.write(id_, text)));
  world_.world.run_for(3 * kSecond);
  world_.power_loss();
  ASSERT_TRUE(ok(world_.open()));
  EXPECT_EQ(world_.store->last_shutdown(), ShutdownKind::machine_restarted);
  EXPECT_TRUE(world_.get(id_) == text);
}

TEST_F(StoreTest, FreedBlocksAreUsedAgainAndEmptyGroupsGivenBack) {
  const auto reserved = [&] {
    uint64_t bytes = 0;
    for (const SizeClassUsage& usage : world_.store->usage()) bytes += usage.reserved_bytes;
    return bytes;
  };
  world_.chunk_size = kChunkMax;
  const std::string text(20 * kMiB, 'x');  // blocks of 32 MiB, 8 in a group
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(ok(world_.write({.inode = round, .index = i}, text)));
    }
    EXPECT_EQ(reserved(), 512 * kMiB);
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(ok(world_.run(world_.store->erase(kTarget, {.inode = round, .index = i}))));
    }
    ASSERT_TRUE(ok(world_.run(world_.store->sync())));
    EXPECT_EQ(reserved(), 256 * kMiB);  // one group is kept
    EXPECT_LE(world_.disk.info(kDir + "/32MiB.data")->allocated, 256 * kMiB);
  }
}

}  // namespace
}  // namespace ff::chunk

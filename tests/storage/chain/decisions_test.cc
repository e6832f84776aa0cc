// Decisions about updates, for every state of the chunk.
#include "storage/chain/decisions.h"

#include <gtest/gtest.h>

namespace ff::chain {
namespace {

using chunk::ChannelResult;
using chunk::ChunkState;
using chunk::RequestId;
using cluster::TargetState;

cluster::Chain chain_of(std::initializer_list<TargetState> states) {
  cluster::Chain chain{.id = 3, .version = 7};
  uint64_t id = 100;
  for (const TargetState state : states)
    chain.targets.push_back({.id = id++, .node = 1, .state = state});
  return chain;
}

TEST(RoleTest, UpdatesGoFromTheHeadThroughAllThatServeToTheOneThatIsCopiedTo) {
  const auto chain = chain_of({TargetState::serving, TargetState::serving, TargetState::syncing,
                               TargetState::waiting, TargetState::offline});
  const auto head = role_of(chain, 100);
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->is_head && head->serving && head->successor_serving);
  EXPECT_EQ(head->successor->id, 101u);
  const auto middle = role_of(chain, 101);
  ASSERT_TRUE(middle);
  EXPECT_TRUE(!middle->is_head && middle->serving && !middle->successor_serving);
  EXPECT_EQ(middle->successor->id, 102u);
  const auto last = role_of(chain, 102);
  ASSERT_TRUE(last);
  EXPECT_TRUE(!last->is_head && !last->serving);
  EXPECT_EQ(last->successor, nullptr);
  EXPECT_FALSE(role_of(chain, 103));
  EXPECT_FALSE(role_of(chain, 104));
  EXPECT_FALSE(role_of(chain, 99));
  EXPECT_EQ(serving_tail(chain)->id, 101u);
}

TEST(RoleTest, TheOnlyOneIsHeadAndTail) {
  const auto chain = chain_of({TargetState::serving, TargetState::waiting});
  const auto role = role_of(chain, 100);
  ASSERT_TRUE(role);
  EXPECT_TRUE(role->is_head && role->serving);
  EXPECT_EQ(role->successor, nullptr);
  EXPECT_EQ(serving_tail(chain)->id, 100u);
}

TEST(RoleTest, NobodyServesWhileTheChainWaitsForItsLast) {
  const auto chain = chain_of({TargetState::lastsrv, TargetState::offline});
  EXPECT_FALSE(role_of(chain, 100));
  EXPECT_EQ(serving_tail(chain), nullptr);
}

constexpr RequestId kMine{.client = 1, .channel = 2, .sequence = 5};
constexpr RequestId kOther{.client = 9, .channel = 2, .sequence = 5};

ChunkState committed(uint64_t version, uint64_t chain_version = 4) {
  ChunkState state;
  state.committed = {.version = version, .length = 10, .checksum = 77};
  state.chain_version = chain_version;
  return state;
}
ChunkState pending(uint64_t version, RequestId writer) {
  ChunkState state = committed(version - 1);
  state.pending = chunk::PendingState{.state = {.version = version}, .request_id = writer};
  return state;
}
ChannelResult result(uint64_t sequence, bool done, uint64_t version = 8) {
  return {.sequence = sequence, .state = {.version = version}, .committed = done};
}

TEST(DecideWriteTest, EveryCase) {
  // No result known; an older update known.
  EXPECT_EQ(decide_write(committed(7), {}, kMine).action, UpdateAction::store);
  EXPECT_EQ(decide_write(committed(7), result(4, true), kMine).action, UpdateAction::store);
  EXPECT_EQ(decide_write(ChunkState(), {}, kMine).action, UpdateAction::store);
  // Already applied: returns the state of that time.
  const UpdateDecision done = decide_write(committed(20), result(5, true), kMine);
  EXPECT_EQ(done.action, UpdateAction::already_done);
  EXPECT_EQ(done.state.version, 8u);
  // Already stored.
  EXPECT_EQ(decide_write(pending(8, kMine), result(5, false), kMine).action, UpdateAction::resume);
  // Another update is pending; a newer one of the channel is known.
  EXPECT_EQ(decide_write(pending(8, kOther), {}, kMine).action, UpdateAction::resolve_pending);
  const UpdateDecision late = decide_write(committed(7), result(6, true), kMine);
  EXPECT_EQ(late.action, UpdateAction::reject);
  EXPECT_NE(late.reason.find("superseded"), std::string::npos);
  EXPECT_EQ(decide_write(committed(7), result(6, false), kMine).action, UpdateAction::reject);
}

TEST(EffectiveUpdateTest, WhatIsClearedIsWhatIsThere) {
  const chunk::Update clear{.type = chunk::UpdateType::punch_hole, .offset = 10, .length = 50};
  const chunk::VersionState hundred{.version = 7, .length = 100};
  const auto inside = effective_update(clear, hundred);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->type, chunk::UpdateType::write);
  EXPECT_EQ(inside->offset, 10u);
  EXPECT_EQ(inside->length, 50u);
  // punch_hole never extends or creates a chunk.
  EXPECT_EQ(effective_update(clear, {.version = 7, .length = 30})->length, 20u);
  EXPECT_FALSE(effective_update(clear, {.version = 7, .length = 10}));
  EXPECT_FALSE(effective_update(clear, {}));
  EXPECT_FALSE(effective_update(clear, {.version = 7, .removed = true}));
  // It removes a chunk that it covers; a single byte more keeps the chunk.
  const chunk::Update all{.type = chunk::UpdateType::punch_hole, .length = 100};
  EXPECT_EQ(effective_update(all, hundred)->type, chunk::UpdateType::remove);
  EXPECT_EQ(effective_update(all, {.version = 7, .length = 60})->type, chunk::UpdateType::remove);
  EXPECT_EQ(effective_update(all, {.version = 8, .length = 101})->type, chunk::UpdateType::write);
}

TEST(EffectiveUpdateTest, OnlyTheVersionThatIsMeantAndNothingForNothing) {
  chunk::Update removal{.type = chunk::UpdateType::remove};
  EXPECT_TRUE(effective_update(removal, {.version = 7, .length = 1}));
  EXPECT_FALSE(effective_update(removal, {}));
  EXPECT_FALSE(effective_update(removal, {.version = 8, .removed = true}));
  removal.expected_version = 7;
  EXPECT_TRUE(effective_update(removal, {.version = 7, .length = 1}));
  EXPECT_FALSE(effective_update(removal, {.version = 8, .length = 1}));
  const chunk::Update write{.type = chunk::UpdateType::write, .expected_version = 7};
  EXPECT_FALSE(effective_update(write, {.version = 8, .length = 1}));
  EXPECT_TRUE(effective_update({.type = chunk::UpdateType::truncate, .length = 5}, {}));
}

TEST(DecideForwardTest, EveryCase) {
  EXPECT_EQ(decide_forward(committed(7), {}, kMine, 8).action, UpdateAction::store);
  EXPECT_EQ(decide_forward(pending(8, kMine), result(5, false), kMine, 8).action,
            UpdateAction::resume);
  // A version of another request is never taken for this one.
  EXPECT_EQ(decide_forward(pending(8, kOther), {}, kMine, 8).action, UpdateAction::reject);
  EXPECT_EQ(decide_forward(committed(8), result(4, true), kMine, 8).action, UpdateAction::reject);
  // An update in between is missing.
  EXPECT_EQ(decide_forward(committed(7), {}, kMine, 9).action, UpdateAction::reject);
  EXPECT_EQ(decide_forward(pending(8, kMine), {}, kMine, 9).action, UpdateAction::reject);
  // Already committed; its result may be pruned, or the channel may have continued.
  const UpdateDecision done = decide_forward(committed(8), result(5, true), kMine, 8);
  EXPECT_EQ(done.action, UpdateAction::already_done);
  EXPECT_EQ(done.state, committed(8).committed);
  EXPECT_EQ(decide_forward(committed(8), {}, kMine, 8).action, UpdateAction::already_done);
  EXPECT_EQ(decide_forward(committed(8), result(6, true), kMine, 8).action,
            UpdateAction::already_done);
  const UpdateDecision old = decide_forward(committed(9), result(4, true), kMine, 8);
  EXPECT_EQ(old.action, UpdateAction::already_done);
  EXPECT_EQ(old.state.version, 8u);
}

TEST(CopyTest, WhatIsFromAnEarlierLifeMeansNothing) {
  constexpr uint64_t kVersion = 12;
  // From an earlier membership, with any version.
  EXPECT_FALSE(already_replaced(committed(9, 11), 6, kVersion));
  EXPECT_FALSE(already_replaced(ChunkState(), 1, kVersion));
  // Written in this membership.
  EXPECT_TRUE(already_replaced(committed(6, kVersion), 6, kVersion));
  EXPECT_TRUE(already_replaced(committed(7, kVersion), 6, kVersion));
  EXPECT_FALSE(already_replaced(committed(5, kVersion), 6, kVersion));
}

TEST(CopyTest, ACopyGoesWhereSomethingDiffers) {
  constexpr uint64_t kVersion = 12;
  const auto state = committed(6).committed;
  EXPECT_FALSE(needs_copy(committed(6, 11), state, 11, kVersion));
  EXPECT_TRUE(needs_copy(committed(6, 10), state, 11, kVersion));  // another update of that number
  EXPECT_TRUE(needs_copy(committed(9, 11), state, 11, kVersion));
  EXPECT_TRUE(needs_copy(ChunkState(), state, 11, kVersion));
  auto other = state;
  other.checksum++;
  EXPECT_TRUE(needs_copy(committed(6, 11), other, 11, kVersion));
  ChunkState doubtful = committed(6, 11);
  doubtful.pending = chunk::PendingState{.state = {.version = 7}, .request_id = kMine};
  EXPECT_TRUE(needs_copy(doubtful, state, 11, kVersion));
  // Chunks written since are newer.
  EXPECT_FALSE(needs_copy(committed(7, kVersion), state, 11, kVersion));
  EXPECT_FALSE(needs_copy(committed(6, kVersion), state, kVersion, kVersion));
}

TEST(CopyTest, AChunkOfThisLifeIsNotErased) {
  EXPECT_TRUE(needs_erase(committed(6, 11), 12));
  EXPECT_FALSE(needs_erase(committed(1, 12), 12));
  EXPECT_TRUE(needs_erase(pending(1, kMine), 12));
}

}  // namespace
}  // namespace ff::chain

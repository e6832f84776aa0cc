// What becomes of an update, by every state that it can meet.
#include "storage/chain/decisions.h"

#include <gtest/gtest.h>

namespace ff::chain {
namespace {

using chunk::ChannelResult;
using chunk::ChunkState;
using chunk::Writer;
using cluster::State;

cluster::Chain chain_of(std::initializer_list<State> states) {
  cluster::Chain chain{.id = 3, .version = 7};
  uint64_t id = 100;
  for (const State state : states) chain.targets.push_back({.id = id++, .node = 1, .state = state});
  return chain;
}

TEST(PartTest, UpdatesGoFromTheHeadThroughAllThatServeToTheOneThatIsCopiedTo) {
  const auto chain =
      chain_of({State::serving, State::serving, State::syncing, State::waiting, State::offline});
  const auto head = part_of(chain, 100);
  ASSERT_TRUE(head);
  EXPECT_TRUE(head->head && head->serves && head->successor_serves);
  EXPECT_EQ(head->successor->id, 101u);
  const auto middle = part_of(chain, 101);
  ASSERT_TRUE(middle);
  EXPECT_TRUE(!middle->head && middle->serves && !middle->successor_serves);
  EXPECT_EQ(middle->successor->id, 102u);
  const auto last = part_of(chain, 102);
  ASSERT_TRUE(last);
  EXPECT_TRUE(!last->head && !last->serves);
  EXPECT_EQ(last->successor, nullptr);
  EXPECT_FALSE(part_of(chain, 103));
  EXPECT_FALSE(part_of(chain, 104));
  EXPECT_FALSE(part_of(chain, 99));
  EXPECT_EQ(reading_tail(chain)->id, 101u);
}

TEST(PartTest, TheOnlyOneIsHeadAndTail) {
  const auto chain = chain_of({State::serving, State::waiting});
  const auto part = part_of(chain, 100);
  ASSERT_TRUE(part);
  EXPECT_TRUE(part->head && part->serves);
  EXPECT_EQ(part->successor, nullptr);
  EXPECT_EQ(reading_tail(chain)->id, 100u);
}

TEST(PartTest, NobodyServesWhileTheChainWaitsForItsLast) {
  const auto chain = chain_of({State::lastsrv, State::offline});
  EXPECT_FALSE(part_of(chain, 100));
  EXPECT_EQ(reading_tail(chain), nullptr);
}

constexpr Writer kMine{.client = 1, .channel = 2, .sequence = 5};
constexpr Writer kOther{.client = 9, .channel = 2, .sequence = 5};

ChunkState committed(uint64_t version, uint64_t chain_version = 4) {
  ChunkState state;
  state.committed = {.version = version, .length = 10, .checksum = 77};
  state.chain_version = chain_version;
  return state;
}
ChunkState pending(uint64_t version, Writer writer) {
  ChunkState state = committed(version - 1);
  state.pending = chunk::PendingState{.image = {.version = version}, .writer = writer};
  return state;
}
ChannelResult result(uint64_t sequence, bool done, uint64_t version = 8) {
  return {.sequence = sequence, .image = {.version = version}, .committed = done};
}

TEST(JudgeWriteTest, EveryCase) {
  // Nothing known, an older update known.
  EXPECT_EQ(judge_write(committed(7), {}, kMine).verdict, Verdict::store);
  EXPECT_EQ(judge_write(committed(7), result(4, true), kMine).verdict, Verdict::store);
  EXPECT_EQ(judge_write(ChunkState(), {}, kMine).verdict, Verdict::store);
  // Done already: the answer is what it made then, whatever has come since.
  const Judgement done = judge_write(committed(20), result(5, true), kMine);
  EXPECT_EQ(done.verdict, Verdict::done);
  EXPECT_EQ(done.image.version, 8u);
  // Stored already.
  EXPECT_EQ(judge_write(pending(8, kMine), result(5, false), kMine).verdict, Verdict::carry_on);
  // Another is pending; a newer one of its channel is known.
  EXPECT_EQ(judge_write(pending(8, kOther), {}, kMine).verdict, Verdict::settle);
  const Judgement late = judge_write(committed(7), result(6, true), kMine);
  EXPECT_EQ(late.verdict, Verdict::refuse);
  EXPECT_NE(late.why.find("overtaken"), std::string::npos);
  EXPECT_EQ(judge_write(committed(7), result(6, false), kMine).verdict, Verdict::refuse);
}

TEST(ComesToTest, WhatIsClearedIsWhatIsThere) {
  const chunk::Update clear{.change = chunk::Change::clear, .offset = 10, .length = 50};
  const chunk::VersionState hundred{.version = 7, .length = 100};
  const auto inside = comes_to(clear, hundred);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->change, chunk::Change::write);
  EXPECT_EQ(inside->offset, 10u);
  EXPECT_EQ(inside->length, 50u);
  // It makes no chunk longer, and none where there is none.
  EXPECT_EQ(comes_to(clear, {.version = 7, .length = 30})->length, 20u);
  EXPECT_FALSE(comes_to(clear, {.version = 7, .length = 10}));
  EXPECT_FALSE(comes_to(clear, {}));
  EXPECT_FALSE(comes_to(clear, {.version = 7, .removed = true}));
  // All that there is goes; one byte that came later keeps it.
  const chunk::Update all{.change = chunk::Change::clear, .length = 100};
  EXPECT_EQ(comes_to(all, hundred)->change, chunk::Change::remove);
  EXPECT_EQ(comes_to(all, {.version = 7, .length = 60})->change, chunk::Change::remove);
  EXPECT_EQ(comes_to(all, {.version = 8, .length = 101})->change, chunk::Change::write);
}

TEST(ComesToTest, OnlyTheVersionThatIsMeantAndNothingForNothing) {
  chunk::Update removal{.change = chunk::Change::remove};
  EXPECT_TRUE(comes_to(removal, {.version = 7, .length = 1}));
  EXPECT_FALSE(comes_to(removal, {}));
  EXPECT_FALSE(comes_to(removal, {.version = 8, .removed = true}));
  removal.only_version = 7;
  EXPECT_TRUE(comes_to(removal, {.version = 7, .length = 1}));
  EXPECT_FALSE(comes_to(removal, {.version = 8, .length = 1}));
  const chunk::Update write{.change = chunk::Change::write, .only_version = 7};
  EXPECT_FALSE(comes_to(write, {.version = 8, .length = 1}));
  EXPECT_TRUE(comes_to({.change = chunk::Change::resize, .length = 5}, {}));
}

TEST(JudgeUpdateTest, EveryCase) {
  EXPECT_EQ(judge_update(committed(7), {}, kMine, 8).verdict, Verdict::store);
  EXPECT_EQ(judge_update(pending(8, kMine), result(5, false), kMine, 8).verdict, Verdict::carry_on);
  // Another writer's version is never taken for this one.
  EXPECT_EQ(judge_update(pending(8, kOther), {}, kMine, 8).verdict, Verdict::refuse);
  EXPECT_EQ(judge_update(committed(8), result(4, true), kMine, 8).verdict, Verdict::refuse);
  // An update between is missing.
  EXPECT_EQ(judge_update(committed(7), {}, kMine, 9).verdict, Verdict::refuse);
  EXPECT_EQ(judge_update(pending(8, kMine), {}, kMine, 9).verdict, Verdict::refuse);
  // Committed already; its result may be forgotten, or its channel have gone on.
  const Judgement done = judge_update(committed(8), result(5, true), kMine, 8);
  EXPECT_EQ(done.verdict, Verdict::done);
  EXPECT_EQ(done.image, committed(8).committed);
  EXPECT_EQ(judge_update(committed(8), {}, kMine, 8).verdict, Verdict::done);
  EXPECT_EQ(judge_update(committed(8), result(6, true), kMine, 8).verdict, Verdict::done);
  const Judgement old = judge_update(committed(9), result(4, true), kMine, 8);
  EXPECT_EQ(old.verdict, Verdict::done);
  EXPECT_EQ(old.image.version, 8u);
}

TEST(CopyTest, WhatIsFromAnEarlierLifeMeansNothing) {
  constexpr uint64_t kVersion = 12;
  // Of an earlier life, with whatever version.
  EXPECT_FALSE(has_replacement(committed(9, 11), 6, kVersion));
  EXPECT_FALSE(has_replacement(ChunkState(), 1, kVersion));
  // Written since.
  EXPECT_TRUE(has_replacement(committed(6, kVersion), 6, kVersion));
  EXPECT_TRUE(has_replacement(committed(7, kVersion), 6, kVersion));
  EXPECT_FALSE(has_replacement(committed(5, kVersion), 6, kVersion));
}

TEST(CopyTest, ACopyGoesWhereSomethingDiffers) {
  constexpr uint64_t kVersion = 12;
  const auto image = committed(6).committed;
  EXPECT_FALSE(wants_copy(committed(6, 11), image, 11, kVersion));
  EXPECT_TRUE(wants_copy(committed(6, 10), image, 11, kVersion));  // another update of that number
  EXPECT_TRUE(wants_copy(committed(9, 11), image, 11, kVersion));
  EXPECT_TRUE(wants_copy(ChunkState(), image, 11, kVersion));
  auto other = image;
  other.checksum++;
  EXPECT_TRUE(wants_copy(committed(6, 11), other, 11, kVersion));
  ChunkState doubtful = committed(6, 11);
  doubtful.pending = chunk::PendingState{.image = {.version = 7}, .writer = kMine};
  EXPECT_TRUE(wants_copy(doubtful, image, 11, kVersion));
  // What came since is newer.
  EXPECT_FALSE(wants_copy(committed(7, kVersion), image, 11, kVersion));
  EXPECT_FALSE(wants_copy(committed(6, kVersion), image, kVersion, kVersion));
}

TEST(CopyTest, AChunkOfThisLifeIsNotErased) {
  EXPECT_TRUE(wants_erase(committed(6, 11), 12));
  EXPECT_FALSE(wants_erase(committed(1, 12), 12));
  EXPECT_TRUE(wants_erase(pending(1, kMine), 12));
}

}  // namespace
}  // namespace ff::chain

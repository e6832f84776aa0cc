// The uncommitted changes of a client, and those that turn out to be lost.
#include "storage/meta/uncommitted_changes.h"

#include <gtest/gtest.h>

namespace ff::meta {
namespace {

UncommittedChanges::Change change(kv::CommitPosition mark, InodeId inode) {
  return {.mark = mark, .action = {"change"}, .inodes = {inode}};
}

std::vector<InodeId> settled(UncommittedChanges& pending, uint64_t count,
                             const std::map<uint64_t, uint64_t>& durable) {
  std::vector<InodeId> inodes;
  for (const auto& lost : pending.commit(count, durable)) inodes.push_back(lost.inodes.front());
  return inodes;
}

TEST(PendingTest, WhatIsDurableAtOnceIsNotKept) {
  UncommittedChanges pending;
  pending.add(change({}, 1));
  EXPECT_TRUE(pending.empty());
  EXPECT_EQ(pending.count(), 0U);
}

TEST(PendingTest, LostIsWhatLiesBehindTheEndOfItsGeneration) {
  UncommittedChanges pending;
  pending.add(change({.generation = 5, .position = 10}, 1));
  pending.add(change({.generation = 5, .position = 12}, 2));
  pending.add(change({.generation = 9, .position = 11}, 3));
  pending.add(change({.generation = 7, .position = 1}, 4));
  EXPECT_EQ(pending.generations(), (std::vector<uint64_t>{5, 9, 7}));
  EXPECT_EQ(settled(pending, pending.count(), {{5, 11}, {9, 11}}), (std::vector<InodeId>{2, 4}));
  EXPECT_TRUE(pending.empty());
}

// A sync does not cover changes that are acknowledged while it runs.
TEST(PendingTest, ASyncSpeaksOfWhatWasThereWhenItBegan) {
  UncommittedChanges pending;
  pending.add(change({.generation = 5, .position = 10}, 1));
  const uint64_t first = pending.count();
  pending.add(change({.generation = 6, .position = 11}, 2));
  const uint64_t second = pending.count();
  EXPECT_EQ(settled(pending, first, {{5, 10}}), std::vector<InodeId>());
  EXPECT_FALSE(pending.empty());
  // Two overlapping syncs: the later one decides.
  EXPECT_EQ(settled(pending, second, {{6, 10}}), (std::vector<InodeId>{2}));
  EXPECT_EQ(settled(pending, first, {}), std::vector<InodeId>());
}

TEST(PendingTest, OnlyTheNewestGenerationsAreAskedFor) {
  UncommittedChanges pending;
  for (uint64_t i = 1; i <= kv::kGenerationsMax + 3; i++) pending.add(change({i, i}, 1));
  const auto asked = pending.generations();
  ASSERT_EQ(asked.size(), kv::kGenerationsMax);
  EXPECT_EQ(asked.front(), 4U);
}

}  // namespace
}  // namespace ff::meta

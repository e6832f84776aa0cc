// Changes that a client has answered under its delegations when it is killed: the successor sends
// them in their order and once, whatever had reached the servers by then.
#include "storage/client/change_journal.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <string>

#include "storage/client/survivor.h"
#include "storage/meta/service.h"

namespace ff::client {
namespace {

using meta::InodeId;
using meta::InodeType;
using Operation = ChangeJournal::Operation;

ChangeJournal::Change creation(uint64_t number, uint64_t origin, const std::string& target = "") {
  ChangeJournal::Change change{.number = number, .origin = origin, .inodes = {1, 100 + number}};
  change.operation.mutable_make()->set_target(target);
  change.operation.mutable_make()->mutable_session()->set_number(7);
  return change;
}

TEST(ChangeJournalTest, ASuccessorFindsWhatWasNotApplied) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  ChangeJournal journal(table.get());
  ASSERT_TRUE(journal.begin_lease(5));
  const std::string target(4000, 'x');  // needs many records
  for (uint64_t i = 1; i <= 4; i++) journal.add(creation(i, 0, i == 3 ? target : ""));
  journal.applied(2);

  const Memory copy(memory);
  const auto table_of_successor = table_on(copy);
  ChangeJournal successor(table_of_successor.get());
  const auto left = successor.take();
  EXPECT_EQ(left.lease, 5u);
  EXPECT_EQ(left.applied, 2u);
  ASSERT_EQ(left.changes.size(), 2u);
  EXPECT_EQ(left.changes[0].number, 3u);
  EXPECT_EQ(left.changes[0].operation.make().target(), target);
  EXPECT_EQ(left.changes[0].inodes, (std::vector<InodeId>{1, 103}));
  EXPECT_EQ(left.changes[1].number, 4u);
  successor.applied(4);
  successor.end_lease();
  EXPECT_EQ(table_of_successor->used(), 0u);
}

TEST(ChangeJournalTest, AChangeThatWasBeingRecordedIsDropped) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  ChangeJournal journal(table.get());
  ASSERT_TRUE(journal.begin_lease(5));
  journal.add(creation(1, 0));
  journal.add(creation(2, 0, std::string(900, 'x')));
  const Memory copy(memory);
  // Without its last part.
  const auto damaged = table_on(copy);
  auto parts = damaged->take(RecoveryTable::Kind::change);
  ASSERT_GT(parts.size(), 3u);
  parts.resize(parts.size() - 1);
  const auto table_of_successor = table_on(copy);
  ChangeJournal successor(table_of_successor.get());
  const auto left = successor.take();
  ASSERT_EQ(left.changes.size(), 1u);
  EXPECT_EQ(left.changes[0].number, 1u);
}

TEST(ChangeJournalTest, ARequestThatMayComeAgainIsKnownUntilItIsAnswered) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  ChangeJournal journal(table.get());
  ASSERT_TRUE(journal.begin_lease(5));
  journal.add(creation(1, 41));
  journal.add(creation(2, 42));
  journal.applied(2);
  journal.end_origin(41);
  const Memory copy(memory);
  const auto table_of_successor = table_on(copy);
  ChangeJournal successor(table_of_successor.get());
  EXPECT_TRUE(successor.take().changes.empty());
  EXPECT_FALSE(successor.answered(41, Operation::kMake));
  ASSERT_TRUE(successor.answered(42, Operation::kMake));
  EXPECT_EQ(successor.answered(42, Operation::kMake)->inode, 102u);
  EXPECT_FALSE(successor.answered(42, Operation::kLink));
  EXPECT_EQ(successor.session_of(42), 7u);
  EXPECT_TRUE(successor.awaits(7));
  // Another successor knows it, too, also after the lease.
  successor.end_lease();
  const Memory again(copy);
  const auto third_table = table_on(again);
  ChangeJournal third(third_table.get());
  EXPECT_TRUE(third.take().changes.empty());
  EXPECT_TRUE(third.answered(42, Operation::kMake));
  third.end_restored_origins();
  EXPECT_FALSE(third.answered(42, Operation::kMake));
  EXPECT_EQ(third_table->used(), 0u);
}

TEST(ChangeJournalTest, AFullTableHasNoRoom) {
  Memory memory(RecoveryTable::bytes_for(0));
  auto table = table_on(memory);
  ChangeJournal journal(table.get());
  EXPECT_TRUE(journal.has_room());
  std::vector<RecoveryTable::Record> all;
  while (table->room() > 10) all.push_back(table->add({.kind = RecoveryTable::Kind::proof}));
  EXPECT_FALSE(journal.has_room());
  EXPECT_FALSE(journal.begin_lease(5));
}

// A client with delegations that is killed; the parameter is when, in steps of kStepNs after it
// began to answer.
constexpr int kKills = 24;
constexpr int64_t kStepNs = 500 * kMicrosecond;

class KilledHolderTest : public FileSystemWorld, public testing::WithParamInterface<int> {
 protected:
  KilledHolderTest() : FileSystemWorld(static_cast<uint64_t>(GetParam()) + 1) {}
  void SetUp() override {
    FileSystemWorld::SetUp();
    first_ = std::make_unique<Survivor>(stage_, "first", Memory(RecoveryTable::bytes_for(0)),
                                        Memory(8 * kMiB), true);
    ASSERT_TRUE(io::ok(run(first_->files.start(INT64_MAX))));
    auto made = run(
        metadata().create({}, meta::root(), "dir", {.kind = InodeType::directory, .mode = 0755}));
    ASSERT_TRUE(io::ok(made));
    dir_ = made->inode.id;
  }
  meta::MetaClient& names() { return first_->files.metadata(); }
  // The next request of the kernel.
  meta::Caller request() {
    meta::Caller caller;
    caller.origin = ++origin_;
    return caller;
  }
  void answered() {
    if (!last_) names().end_origin(origin_);
  }
  void make(std::string name) {
    auto made = run(names().create(request(), {.id = dir_}, name, {.mode = 0644}));
    ASSERT_TRUE(io::ok(made));
    expected_[std::move(name)] = made->inode.id;
    answered();
  }
  void rename(const std::string& from, const std::string& to) {
    meta::MetaClient::Rename how{
        .from_dir = {.id = dir_}, .from = from, .to_dir = {.id = dir_}, .to = to};
    ASSERT_TRUE(io::ok(run(names().rename(request(), std::move(how)))));
    expected_[to] = expected_[from];
    expected_.erase(from);
    answered();
  }
  void remove(const std::string& name) {
    ASSERT_TRUE(io::ok(run(names().unlink(request(), {.id = dir_}, name, std::nullopt))));
    expected_.erase(name);
    answered();
  }
  void hold() {
    for (int i = 0; i < 3; i++) make(std::to_string(i));
    ASSERT_TRUE(eventually([&] { return first_->files.delegations() == 1; }));
    pass(kSecond);  // the numbers of new inodes arrive
  }
  FileSystem& kill() {
    second_ = std::make_unique<Survivor>(stage_, "second", first_->records, first_->data, true);
    cut_off(cluster_, "first");
    EXPECT_TRUE(io::ok(run(second_->files.start(INT64_MAX))));
    EXPECT_TRUE(io::ok(run(second_->files.restore())));
    return second_->files;
  }
  void check() {
    std::map<std::string, InodeId> found;
    const auto page = run(metadata().list({}, {.id = dir_}, "", 1000, false));
    ASSERT_TRUE(io::ok(page));
    for (const auto& entry : page->entries) found[entry.name] = entry.id;
    EXPECT_EQ(found, expected_);
    EXPECT_EQ(fsck().problems(), 0u);
  }

  std::unique_ptr<Survivor> first_, second_;
  InodeId dir_ = 0;
  uint64_t origin_ = 0;
  bool last_ = false;  // the kernel gets no answer
  std::map<std::string, InodeId> expected_;
};
INSTANTIATE_TEST_SUITE_P(AtEachStep, KilledHolderTest, testing::Range(0, kKills));

TEST_P(KilledHolderTest, WhatItAnsweredIsAppliedOnce) {
  hold();
  int64_t left_ns = GetParam() * kStepNs;
  for (int i = 0; left_ns >= 0; i++, left_ns -= kStepNs) {
    make(fmt::format("a{}", i));
    make(fmt::format("b{}", i));
    if (i % 2 == 1) rename(fmt::format("a{}", i), fmt::format("a{}", i - 1));
    if (i % 3 == 1) remove(fmt::format("b{}", i));
    if (left_ns > 0) pass(kStepNs);
  }
  const int64_t before_ns = stage_.world.now_ns();
  FileSystem& successor = kill();
  EXPECT_LT(stage_.world.now_ns() - before_ns, meta::kDelegationHolderNs);
  EXPECT_EQ(successor.pending_changes(), 0u);
  successor.metadata().end_restored_origins();
  EXPECT_EQ(second_->table->used(), 0u);
  check();
  // It goes on.
  first_ = std::move(second_);
  for (int i = 0; i < 5; i++) make(fmt::format("c{}", i));
  ASSERT_TRUE(io::ok(run(names().sync())));
  check();
}

// The kernel repeats the last request, whose answer it did not get.
TEST_P(KilledHolderTest, ARepeatedRequestGetsTheSameAnswer) {
  hold();
  make("old");
  const InodeId removed = expected_["old"];
  make("moved");
  last_ = true;
  if (GetParam() % 4 == 0) make("new");
  if (GetParam() % 4 == 1) remove("old");
  if (GetParam() % 4 == 2) rename("moved", "there");
  if (GetParam() % 4 == 3) {
    ASSERT_TRUE(
        io::ok(run(names().link(request(), {.id = expected_["moved"]}, {.id = dir_}, "l"))));
    expected_["l"] = expected_["moved"];
  }
  pass(GetParam() * kStepNs);
  meta::MetaClient& successor = kill().metadata();
  check();
  meta::Caller again;
  again.origin = origin_;
  Result<meta::InodeView> answer = Error();
  const meta::InodeRef dir{.id = dir_};
  if (GetParam() % 4 == 0) {
    answer = run(successor.create(again, dir, "new", {.mode = 0644, .exclusive = true}));
  }
  if (GetParam() % 4 == 1) answer = run(successor.unlink(again, dir, "old", std::nullopt));
  if (GetParam() % 4 == 2) {
    meta::MetaClient::Rename how{.from_dir = dir, .from = "moved", .to_dir = dir, .to = "there"};
    answer = run(successor.rename(again, std::move(how)));
  }
  if (GetParam() % 4 == 3) {
    answer = run(successor.link(again, {.id = expected_["moved"]}, dir, "l"));
  }
  ASSERT_TRUE(io::ok(answer));
  const InodeId of_answer[] = {expected_["new"], removed, expected_["there"], expected_["l"]};
  EXPECT_EQ(answer->inode.id, of_answer[GetParam() % 4]);
  successor.end_origin(again.origin);
  successor.end_restored_origins();
  EXPECT_EQ(second_->table->used(), 0u);
  if (GetParam() % 4 != 0) expected_.erase("new");
  if (GetParam() % 4 != 2) expected_.erase("there");
  if (GetParam() % 4 != 3) expected_.erase("l");
  check();
}

}  // namespace
}  // namespace ff::client

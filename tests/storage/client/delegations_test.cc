// Clients that hold directory delegations, in a simulated cluster: what they answer by themselves,
// what others see of it, and what partitions and restarts leave.
#include "storage/client/delegations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "storage/client/survivor.h"
#include "storage/meta/service.h"

namespace ff::client {
namespace {

using meta::InodeId;
using meta::InodeType;

class DelegatedClientsTest : public FileSystemWorld {
 protected:
  DelegatedClientsTest() : FileSystemWorld(3) {}
  void SetUp() override {
    FileSystemWorld::SetUp();
    ASSERT_TRUE(io::ok(run(holder().start(INT64_MAX))));
    ASSERT_TRUE(io::ok(run(rival_.files().start(INT64_MAX))));
    dir_ = make_dir(metadata(), meta::kRoot, "dir");
  }
  FileSystem& holder() { return holder_->files(); }
  meta::MetaClient& names() { return holder().metadata(); }

  InodeId make_dir(meta::MetaClient& client, InodeId in, std::string name) {
    auto made = run(client.create({}, {.id = in}, std::move(name),
                                  {.kind = InodeType::directory, .mode = 0755}));
    EXPECT_TRUE(io::ok(made));
    return made ? made->inode.id : 0;
  }
  Result<meta::InodeView> touch(meta::MetaClient& client, InodeId dir, std::string name) {
    return run(client.create({}, {.id = dir}, std::move(name), {.mode = 0644}));
  }
  Result<meta::InodeView> look(meta::MetaClient& client, InodeId dir, std::string name) {
    return run(client.lookup({}, {.id = dir}, std::move(name)));
  }
  int sys(const Result<meta::InodeView>& result) { return result ? 0 : result.error().sys; }
  Result<meta::InodeView> rename(meta::MetaClient& client, InodeId from, std::string old,
                                 InodeId to, std::string name) {
    meta::MetaClient::Rename how{.from_dir = {.id = from},
                                 .from = std::move(old),
                                 .to_dir = {.id = to},
                                 .to = std::move(name)};
    return run(client.rename({}, std::move(how)));
  }
  // Makes the holder hold `dir_`, with the names "0", "1", "2".
  void hold() {
    for (int i = 0; i < 3; i++) ASSERT_TRUE(io::ok(touch(names(), dir_, std::to_string(i))));
    ASSERT_TRUE(eventually([&] { return holder().delegations() == 1; }));
    pass(kSecond);  // the numbers of new inodes arrive
  }
  void cut_off(bool cut) {
    for (const auto& manager : cluster_.managers()) {
      if (cut) stage_.net.block("holder", manager->name());
      if (cut) stage_.net.block(manager->name(), "holder");
      if (!cut) stage_.net.unblock("holder", manager->name());
      if (!cut) stage_.net.unblock(manager->name(), "holder");
    }
  }

  std::unique_ptr<User> holder_ = std::make_unique<User>(stage_, "holder", true);
  User rival_{stage_, "rival", true};
  InodeId dir_ = 0;
};

TEST_F(DelegatedClientsTest, ItAnswersWithoutACall) {
  hold();
  const uint64_t delivered = stage_.net.delivered();
  const int64_t before_ns = stage_.world.now_ns();
  ASSERT_TRUE(io::ok(touch(names(), dir_, "a")));
  EXPECT_EQ(sys(touch(names(), dir_, "a")), EEXIST);
  EXPECT_EQ(sys(look(names(), dir_, "b")), ENOENT);
  EXPECT_EQ(look(names(), dir_, "a")->inode.links, 1u);
  ASSERT_TRUE(io::ok(rename(names(), dir_, "a", dir_, "b")));
  EXPECT_EQ(sys(look(names(), dir_, "a")), ENOENT);
  const InodeId sub = make_dir(names(), dir_, "sub");
  ASSERT_TRUE(io::ok(touch(names(), sub, "deep")));
  ASSERT_TRUE(io::ok(rename(names(), sub, "deep", dir_, "up")));
  ASSERT_TRUE(io::ok(run(names().rmdir({}, {.id = dir_}, "sub"))));
  ASSERT_TRUE(io::ok(run(names().unlink({}, {.id = dir_}, "up", std::nullopt))));
  const InodeId file = look(names(), dir_, "b")->inode.id;
  EXPECT_EQ(run(names().set_attributes({}, {.id = file}, {.mode = 0600}))->inode.mode, 0600u);
  ASSERT_TRUE(io::ok(run(names().link({}, {.id = file}, {.id = dir_}, "c"))));
  EXPECT_EQ(run(names().stat({.id = file}, false))->inode.links, 2u);
  EXPECT_EQ(stage_.world.now_ns(), before_ns);
  EXPECT_EQ(stage_.net.delivered(), delivered);
  EXPECT_GT(holder().pending_changes(), 0u);
  // Soon all is at the servers, as it was answered.
  const auto here = run(names().stat({.id = file}, false));
  ASSERT_TRUE(io::ok(run(names().sync())));
  EXPECT_EQ(holder().pending_changes(), 0u);
  const auto there = look(metadata(), dir_, "c");
  ASSERT_TRUE(io::ok(there));
  EXPECT_EQ(there->inode, here->inode);
  EXPECT_EQ(sys(look(metadata(), dir_, "up")), ENOENT);
  EXPECT_EQ(sys(look(metadata(), dir_, "sub")), ENOENT);
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(DelegatedClientsTest, OthersSeeWhatWasAnswered) {
  hold();
  for (int i = 0; i < 100; i++) {
    ASSERT_TRUE(io::ok(touch(names(), dir_, fmt::format("n{}", i))));
  }
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_TRUE(io::ok(look(metadata(), dir_, "n99")));  // recalls it
  EXPECT_LT(stage_.world.now_ns() - before_ns, meta::kDelegationLeaseNs);
  EXPECT_EQ(holder().delegations(), 0u);
  EXPECT_EQ(run(metadata().list({}, {.id = dir_}, "", 1000, true))->entries.size(), 103u);
  EXPECT_EQ(fsck().problems(), 0u);
}

// Two mounts that both ask for delegations, in one directory.
TEST_F(DelegatedClientsTest, ExclusiveCreationIsExact) {
  hold();
  meta::MetaClient& rival = rival_.files().metadata();
  int made = 0;
  for (int i = 0; i < 40; i++) {
    const std::string name = fmt::format("x{}", i / 2);
    made += touch(names(), dir_, name).ok() ? 1 : 0;
    made += touch(rival, dir_, name).ok() ? 1 : 0;
    if (i % 7 == 0) pass(2 * kSecond);
  }
  EXPECT_EQ(made, 20);
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(DelegatedClientsTest, RenamesAcrossDirectoriesAreExact) {
  hold();
  const InodeId other = make_dir(metadata(), meta::kRoot, "other");
  ASSERT_TRUE(io::ok(touch(names(), dir_, "a")));
  ASSERT_TRUE(io::ok(rename(names(), dir_, "a", other, "b")));
  EXPECT_EQ(sys(look(names(), dir_, "a")), ENOENT);
  EXPECT_TRUE(io::ok(look(metadata(), other, "b")));
  EXPECT_TRUE(io::ok(rename(metadata(), other, "b", dir_, "back")));
  EXPECT_TRUE(io::ok(look(names(), dir_, "back")));
  EXPECT_EQ(fsck().problems(), 0u);
}

// Data of files that are made under a delegation goes to storage before their names do.
TEST_F(DelegatedClientsTest, FilesAreWrittenAndReadByOthers) {
  hold();
  const std::string text = text_of(1, 8 * 1024);
  for (int i = 0; i < 20; i++) {
    auto made = run(holder().create({}, {.id = dir_}, fmt::format("f{}", i), {.mode = 0644}));
    ASSERT_TRUE(io::ok(made));
    ASSERT_TRUE(io::ok(run((*made)->write_behind(0, as_bytes(text)))));
    ASSERT_TRUE(io::ok(run((*made)->close())));
  }
  const auto view = look(metadata(), dir_, "f19");
  ASSERT_TRUE(io::ok(view));
  EXPECT_EQ(view->inode.length, text.size());
  auto file = open(view->inode.id);
  ASSERT_TRUE(io::ok(file));
  EXPECT_EQ(read(**file, 0, 100'000), text);
  const auto report = fsck();
  EXPECT_EQ(report.problems(), 0u);
  EXPECT_EQ(report.sessions(), 0u);
}

TEST_F(DelegatedClientsTest, AHolderOutOfReachLosesItAndSaysSo) {
  hold();
  cut_off(true);
  const auto lost = touch(names(), dir_, "lost");
  ASSERT_TRUE(io::ok(lost));
  auto errors = holder().cursor();
  auto state = holder().state_of(dir_);
  auto cursor = state->errors.sample();
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_TRUE(io::ok(touch(metadata(), dir_, "other")));
  EXPECT_LT(stage_.world.now_ns() - before_ns, 30 * kSecond);
  cut_off(false);
  ASSERT_TRUE(eventually([&] { return holder().pending_changes() == 0; }));
  EXPECT_EQ(state->errors.check_and_advance(cursor).error().sys, EIO);
  EXPECT_FALSE(run(holder().sync_metadata(errors)).ok());
  EXPECT_EQ(sys(look(names(), dir_, "lost")), ENOENT);
  EXPECT_TRUE(io::ok(look(names(), dir_, "other")));
  EXPECT_EQ(fsck().problems(), 0u);
}

// Nobody else asks, so nothing is lost.
TEST_F(DelegatedClientsTest, APartitionAloneLosesNothing) {
  hold();
  cut_off(true);
  ASSERT_TRUE(io::ok(touch(names(), dir_, "kept")));
  pass(40 * kSecond);
  cut_off(false);
  ASSERT_TRUE(io::ok(run(names().sync())));
  EXPECT_TRUE(io::ok(look(metadata(), dir_, "kept")));
}

// A delegation outlives the servers; the changes are sent to another one.
TEST_F(DelegatedClientsTest, RestartedServersKnowTheDelegations) {
  hold();
  for (int round = 0; round < 3; round++) {
    for (const auto& manager : cluster_.managers()) manager->kill();
    ASSERT_TRUE(io::ok(touch(names(), dir_, fmt::format("during{}", round))));
    for (const auto& manager : cluster_.managers()) manager->start();
    ASSERT_TRUE(io::ok(look(metadata(), dir_, fmt::format("during{}", round))));
    ASSERT_TRUE(io::ok(touch(names(), dir_, fmt::format("a{}", round))));
    ASSERT_TRUE(io::ok(touch(names(), dir_, fmt::format("b{}", round))));
    ASSERT_TRUE(io::ok(touch(names(), dir_, fmt::format("c{}", round))));
    ASSERT_TRUE(eventually([&] { return holder().delegations() == 1; }));
    pass(kSecond);
  }
  EXPECT_EQ(fsck().problems(), 0u);
}

// A client that dies with changes: others get in after its lease, and what it had written to files
// whose names nobody has got is collected.
TEST_F(DelegatedClientsTest, ChunksOfADeadClientAreCollected) {
  hold();
  cut_off(true);
  auto made = run(holder().create({}, {.id = dir_}, "orphan", {.mode = 0644}));
  ASSERT_TRUE(io::ok(made));
  ASSERT_TRUE(io::ok(run((*made)->write(0, as_bytes(text_of(2, 1000))))));
  const size_t with_orphan = stored();
  made = Error{};
  holder_.reset();
  EXPECT_TRUE(io::ok(touch(metadata(), dir_, "next")));
  EXPECT_EQ(sys(look(metadata(), dir_, "orphan")), ENOENT);
  (void)fsck(true);
  pass(2 * kSecond);
  (void)fsck(true, kSecond);
  EXPECT_LT(stored(), with_orphan);
  EXPECT_EQ(fsck().problems(), 0u);
  holder_ = std::make_unique<User>(stage_, "later", true);
}

TEST_F(DelegatedClientsTest, AnUnmountSendsAllAndGivesAllBack) {
  hold();
  ASSERT_TRUE(io::ok(touch(names(), dir_, "last")));
  run(holder().close());
  const int64_t before_ns = stage_.world.now_ns();
  EXPECT_TRUE(io::ok(look(metadata(), dir_, "last")));
  EXPECT_LT(stage_.world.now_ns() - before_ns, kSecond);
}

// The server that creates the lease knows a copy of the request that arrives late (retry_test.cc).
TEST_F(DelegatedClientsTest, TheCreationOfALeaseIsSentInASlot) {
  Survivor other(stage_, "other", Memory(RecoveryTable::bytes_for(0)), Memory(64 * kMiB), true);
  ASSERT_TRUE(io::ok(run(other.files.start(INT64_MAX))));
  for (int i = 0; i < 3; i++) {
    ASSERT_TRUE(io::ok(touch(other.files.metadata(), dir_, std::to_string(i))));
  }
  EXPECT_TRUE(eventually([&] { return other.files.delegations() == 1; }));
  EXPECT_TRUE(std::ranges::any_of(other.table->metadata().slots, [](const auto& slot) {
    return slot.method.load() == meta::kRenewLease.number;
  }));
}

TEST_F(DelegatedClientsTest, PermissionsAreCheckedHere) {
  hold();
  const meta::Caller user{.uid = 1000, .gid = 1000};
  EXPECT_EQ(sys(run(names().create(user, {.id = dir_}, "u", {.mode = 0644}))), EACCES);
  EXPECT_EQ(sys(run(names().unlink(user, {.id = dir_}, "0", std::nullopt))), EACCES);
  ASSERT_TRUE(io::ok(run(names().set_attributes({}, {.id = dir_}, {.mode = 01777}))));
  EXPECT_TRUE(io::ok(run(names().create(user, {.id = dir_}, "u", {.mode = 0644}))));
  const meta::Caller other{.uid = 1001, .gid = 1001};
  EXPECT_EQ(sys(run(names().unlink(other, {.id = dir_}, "u", std::nullopt))), EPERM);
  ASSERT_TRUE(io::ok(run(names().set_attributes({}, {.id = dir_}, {.mode = 0700}))));
  EXPECT_EQ(sys(run(names().lookup(user, {.id = dir_}, "u"))), EACCES);
}

}  // namespace
}  // namespace ff::client

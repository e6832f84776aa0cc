// Open files and names of a mount, in a simulated cluster without a kernel: two mounts on one
// machine, or on two.
#include "storage/mount/two_mounts.h"

namespace ff::mount {
namespace {

using client::text_of;

class OperationsTest : public TwoMounts {};

TEST_F(OperationsTest, ProgramsOfAMountShareAFile) {
  const Made first = make_open(*here_, "a");
  const auto second = open(*here_, first.inode, O_RDWR);
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(write(*here_, first.handle, 0, "12345").ok());
  EXPECT_TRUE(write(*here_, second->handle, 2, "XX").ok());
  EXPECT_EQ(read(*here_, first.handle, 0, 10), "12XX5");
  EXPECT_EQ(run(here_->operations.getattr(first.inode))->inode.length, 5u);
  close(*here_, first.handle);
  EXPECT_EQ(read(*here_, second->handle, 0, 10), "12XX5");
  close(*here_, second->handle);
}

TEST_F(OperationsTest, PagesStayWhileNobodyElseHasWritten) {
  const Made made = make_open(*here_, "a");
  EXPECT_TRUE(write(*here_, made.handle, 0, text_of(1, 1000)).ok());
  close(*here_, made.handle);
  // Changed through this mount, whose pages the kernel has.
  auto again = open(*here_, made.inode, O_RDWR);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->keep_cache);
  EXPECT_TRUE(write(*here_, again->handle, 10, "more").ok());
  close(*here_, again->handle);
  again = open(*here_, made.inode, O_RDONLY);
  EXPECT_TRUE(again->keep_cache);
  close(*here_, again->handle);
  // Changed by another mount, with the same length.
  ASSERT_EQ(lookup(*there_, "a"), 0);
  const auto theirs = open(*there_, made.inode, O_WRONLY);
  ASSERT_TRUE(theirs.ok());
  EXPECT_TRUE(write(*there_, theirs->handle, 10, "less").ok());
  close(*there_, theirs->handle);
  ASSERT_EQ(lookup(*here_, "a"), 0);
  again = open(*here_, made.inode, O_RDONLY);
  EXPECT_FALSE(again->keep_cache);
  EXPECT_EQ(read(*here_, again->handle, 10, 4), "less");
  close(*here_, again->handle);
}

// Writes that bypass the page cache invalidate it.
TEST_F(OperationsTest, DirectWritesAreToldToWhoHasPages) {
  const Made cached = make_open(*here_, "a");
  const auto direct = open(*here_, cached.inode, O_RDWR | O_DIRECT);
  ASSERT_TRUE(direct.ok());
  EXPECT_TRUE(direct->direct);
  EXPECT_TRUE(write(*here_, direct->handle, 0, "past").ok());
  EXPECT_EQ(here_->kernel.pages, std::vector{cached.inode});
  close(*here_, cached.handle);
  EXPECT_TRUE(write(*here_, direct->handle, 0, "them").ok());
  EXPECT_EQ(here_->kernel.pages.size(), 1u);  // nobody has any
  close(*here_, direct->handle);
  EXPECT_FALSE(open(*here_, cached.inode, O_RDONLY)->keep_cache);
}

TEST_F(OperationsTest, ANameThatLeadsElsewhereIsLookedUpAgain) {
  const Made made = make_open(*here_, "a");
  close(*here_, made.handle);
  ASSERT_EQ(lookup(*here_, "a"), 0);
  pass(kSecond / 2);
  // Another mount replaces the file under this name.
  const Made theirs = make_open(*there_, "new");
  close(*there_, theirs.handle);
  Operations::Rename over{.from_dir = meta::kRoot, .from = "new", .to_dir = meta::kRoot, .to = "a"};
  ASSERT_TRUE(run(there_->operations.rename({}, std::move(over))).ok());
  const auto stale = open(*here_, made.inode, O_RDONLY);
  ASSERT_FALSE(stale.ok());
  EXPECT_EQ(stale.error().sys, ESTALE);
  EXPECT_EQ(run(here_->operations.lookup({}, meta::kRoot, "a"))->id, theirs.inode);
  EXPECT_TRUE(open(*here_, theirs.inode, O_RDONLY).ok());
}

TEST_F(OperationsTest, BytesWithoutANameStayWhileTheyAreOpen) {
  const Made made = make_open(*here_, "a");
  EXPECT_TRUE(write(*here_, made.handle, 0, "text").ok());
  close(*here_, made.handle);
  const auto reader = open(*here_, made.inode, O_RDONLY);
  ASSERT_TRUE(run(here_->operations.unlink({}, meta::kRoot, "a")).ok());
  pass(1200 * kSecond);  // far longer than the bytes of a removed file are kept
  EXPECT_EQ(read(*here_, reader->handle, 0, 10), "text");
  EXPECT_TRUE(open(*here_, made.inode, O_RDONLY).ok());  // by way of /proc/self/fd
  EXPECT_EQ(stored(), 1u);
  for (uint64_t handle = 1; handle <= reader->handle + 1; handle++) {
    run(here_->operations.release(handle));
  }
  EXPECT_TRUE(eventually([&] { return stored() == 0; }));
}

TEST_F(OperationsTest, AppendsGoBehindWhatOthersHaveAppended) {
  const uint32_t appends = O_WRONLY | O_APPEND;
  const Made ours = make_open(*here_, "log", appends);
  ASSERT_EQ(lookup(*there_, "log"), 0);
  const auto theirs = open(*there_, ours.inode, appends);
  ASSERT_TRUE(theirs.ok());
  for (int i = 0; i < 5; i++) {
    // The kernel does not know the bytes of the others: its offset must be ignored.
    EXPECT_TRUE(write(*here_, ours.handle, 0, "a", appends).ok());
    EXPECT_TRUE(write(*there_, theirs->handle, 0, "b", appends).ok());
  }
  close(*here_, ours.handle);
  close(*there_, theirs->handle);
  ASSERT_EQ(lookup(*here_, "log"), 0);
  const auto reader = open(*here_, ours.inode, O_RDONLY);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(read(*here_, reader->handle, 0, 100), "ababababab");
}

TEST_F(OperationsTest, ADirectoryIsListedPageByPage) {
  constexpr size_t kFiles = 2500;  // more than two pages
  for (size_t i = 0; i < kFiles; i++) {
    ASSERT_TRUE(
        run(here_->operations.mknod({}, meta::kRoot, fmt::format("{:05}", i), {.mode = 0644}))
            .ok());
  }
  const auto handle = run(here_->operations.open_dir({}, meta::kRoot));
  ASSERT_TRUE(handle.ok());
  const auto directory = here_->operations.directory(*handle);
  const auto list = [&](uint64_t from) {
    std::vector<std::string> all;
    for (;;) {
      const auto entries = run(directory->read(from, true));
      if (!entries || entries->empty()) return all;
      for (const auto* entry : *entries) {
        all.push_back(entry->listed.name);
        from = entry->position + 1;
      }
    }
  };
  const auto all = list(0);
  ASSERT_EQ(all.size(), kFiles + 2);
  EXPECT_EQ(all[0], ".");
  EXPECT_EQ(all[2], "00000");
  EXPECT_EQ(all.back(), "02499");
  // Seeks back to earlier positions and continues from there.
  for (const uint64_t from : {uint64_t{1500}, uint64_t{3}, uint64_t{2400}, uint64_t{0}}) {
    const auto rest = list(from);
    ASSERT_EQ(rest.size(), all.size() - from);
    EXPECT_EQ(rest.front(), all[from]);
  }
}

TEST_F(OperationsTest, TimesOfADirectoryAreThoseOfItsServers) {
  (void)run(here_->operations.getattr(meta::kRoot));
  for (const char* const name : {"a", "b"}) {
    ASSERT_TRUE(run(here_->operations.mknod({}, meta::kRoot, name,
                                            {.kind = meta::InodeType::directory, .mode = 0755}))
                    .ok());
    const auto known = run(here_->operations.getattr(meta::kRoot));
    const auto told = run(metadata().stat(meta::root(), false));
    EXPECT_EQ(known->inode.mtime_ns, told->inode.mtime_ns);
    EXPECT_EQ(known->inode.ctime_ns, told->inode.ctime_ns);
    EXPECT_EQ(known->inode.links, told->inode.links);
  }
  ASSERT_TRUE(run(here_->operations.rmdir({}, meta::kRoot, "a")).ok());
  const auto known = run(here_->operations.getattr(meta::kRoot));
  const auto told = run(metadata().stat(meta::root(), false));
  EXPECT_EQ(known->inode.links, told->inode.links);
  EXPECT_EQ(known->inode.mtime_ns, told->inode.mtime_ns);
}

TEST_F(OperationsTest, WhatOthersDoToADirectoryIsSeenSoon) {
  const auto before = run(here_->operations.getattr(meta::kRoot));
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(run(there_->operations.mknod({}, meta::kRoot, "theirs",
                                           {.kind = meta::InodeType::directory, .mode = 0755}))
                  .ok());
  pass(2 * kCacheTimeoutNs);
  const auto after = run(here_->operations.getattr(meta::kRoot));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->inode.links, before->inode.links + 1);
  EXPECT_GT(after->inode.mtime_ns, before->inode.mtime_ns);
}

// ftruncate(2) checks how the file was opened, truncate(2) its mode.
TEST_F(OperationsTest, WhoHasItOpenForWritingMayCutIt) {
  const meta::Caller user{.uid = 7, .gid = 7};
  const Made made = make_open(*here_, "a");
  EXPECT_TRUE(write(*here_, made.handle, 0, "12345").ok());
  close(*here_, made.handle);
  const meta::Namespace::Attributes theirs{.mode = 0600, .uid = 7, .gid = 7};
  ASSERT_TRUE(run(here_->operations.setattr({}, made.inode, {.to = theirs})).ok());
  const auto open = run(here_->operations.open(user, made.inode, O_RDWR));
  ASSERT_TRUE(open.ok());
  ASSERT_TRUE(run(here_->operations.setattr(user, made.inode, {.to = {.mode = 0400}})).ok());
  const auto by_name = run(here_->operations.setattr(user, made.inode, {.length = 2}));
  ASSERT_FALSE(by_name.ok());
  EXPECT_EQ(by_name.error().sys, EACCES);
  EXPECT_TRUE(
      run(here_->operations.setattr(user, made.inode, {.length = 3, .handle = open->handle})).ok());
  EXPECT_EQ(read(*here_, open->handle, 0, 10), "123");
  close(*here_, open->handle);
}

TEST_F(OperationsTest, BytesThatARenameReplacesStayWhileTheyAreOpen) {
  const Made old = make_open(*here_, "old");
  EXPECT_TRUE(write(*here_, old.handle, 0, "old").ok());
  close(*here_, old.handle);
  const Made made = make_open(*here_, "new");
  EXPECT_TRUE(write(*here_, made.handle, 0, "new").ok());
  close(*here_, made.handle);
  const auto reader = open(*here_, old.inode, O_RDONLY);
  ASSERT_TRUE(reader.ok());
  Operations::Rename over{
      .from_dir = meta::kRoot, .from = "new", .to_dir = meta::kRoot, .to = "old"};
  ASSERT_TRUE(run(here_->operations.rename({}, std::move(over))).ok());
  pass(1200 * kSecond);
  EXPECT_EQ(read(*here_, reader->handle, 0, 10), "old");
  EXPECT_EQ(stored(), 2u);
  run(here_->operations.release(reader->handle));
  EXPECT_TRUE(eventually([&] { return stored() == 1; }));
}

TEST_F(OperationsTest, WhoOnlyReadsMayClearNothing) {
  const Made made = make_open(*here_, "a");
  EXPECT_TRUE(write(*here_, made.handle, 0, "12345").ok());
  const auto reader = open(*here_, made.inode, O_RDONLY);
  ASSERT_TRUE(reader.ok());
  const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const auto refused = run(here_->operations.allocate(reader->handle, punch, 1, 2));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().sys, EBADF);
  EXPECT_EQ(read(*here_, made.handle, 0, 10), "12345");
  EXPECT_TRUE(run(here_->operations.allocate(made.handle, punch, 1, 2)).ok());
  EXPECT_EQ(read(*here_, made.handle, 0, 10), std::string("1\0\0"
                                                          "45",
                                                          5));
  close(*here_, made.handle);
}

}  // namespace
}  // namespace ff::mount

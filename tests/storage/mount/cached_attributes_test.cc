// Which requests of the kernel a mount answers without a call, and when it has the kernel drop
// attributes; in a simulated cluster, without a kernel.
#include "storage/mount/two_mounts.h"

namespace ff::mount {
namespace {

class CachedAttributesTest : public TwoMounts {
 protected:
  // Calls of all clients that ended so.
  uint64_t calls(const char* method, const char* code = "ok") {
    return stage_.metrics
        .counter("ff_rpc_client_calls_total", "Calls made, by how they ended",
                 {{"method", method}, {"code", code}})
        .value();
  }
  meta::Inode attributes(OneMount& mount, meta::InodeId inode) {
    const auto found = run(mount.operations.getattr(inode));
    EXPECT_TRUE(io::ok(found));
    return found ? found->inode : meta::Inode();
  }
  // As the servers have them.
  meta::Inode stored(meta::InodeId inode) {
    const auto found = run(metadata().stat({.id = inode}, false));
    EXPECT_TRUE(io::ok(found));
    return found ? found->inode : meta::Inode();
  }
  meta::InodeId make_closed(OneMount& mount, std::string name, std::string_view text) {
    const Made made = make_open(mount, std::move(name));
    EXPECT_TRUE(write(mount, made.handle, 0, text).ok());
    close(mount, made.handle);
    return made.inode;
  }
};

TEST_F(CachedAttributesTest, AnOpenDropsAttributesThatTheKernelMayHaveWrong) {
  const auto inode = make_closed(*there_, "a", "text");
  ASSERT_EQ(lookup(*here_, "a"), 0);
  auto opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(here_->kernel.attributes.empty());  // LOOKUP gave it the right ones
  close(*here_, opened->handle);
  const auto theirs = open(*there_, inode, O_WRONLY);
  ASSERT_TRUE(theirs.ok());
  EXPECT_TRUE(write(*there_, theirs->handle, 4, "more").ok());
  close(*there_, theirs->handle);
  here_->operations.inodes().find(inode)->lookup_ns = 0;  // opened without its name
  opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(here_->kernel.attributes, std::vector{inode});
  EXPECT_EQ(attributes(*here_, inode).length, 8u);
  close(*here_, opened->handle);
  // The kernel has asked since, and has the right ones.
  here_->kernel.attributes.clear();
  opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(here_->kernel.attributes.empty());
  close(*here_, opened->handle);
}

// The kernel drops the attributes of a file by itself when a program writes to it.
TEST_F(CachedAttributesTest, AnOpenAfterOwnWritesDropsNothing) {
  const auto inode = make_closed(*here_, "a", "text");
  ASSERT_EQ(lookup(*here_, "a"), 0);
  here_->kernel.attributes.clear();
  const auto opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(here_->kernel.attributes.empty());
  close(*here_, opened->handle);
}

// Two replies under way may reach the kernel in either order: it may keep the older one.
TEST_F(CachedAttributesTest, AnOpenDropsAttributesAfterDifferentReplies) {
  const auto inode = make_closed(*here_, "a", "text");
  ASSERT_EQ(lookup(*here_, "a"), 0);
  CachedInode& cached = *here_->operations.inodes().find(inode);
  meta::Inode now = attributes(*here_, inode);
  meta::Inode older = now;
  older.length = 1;
  cached.on_reply(older);
  cached.on_reply(now);
  EXPECT_FALSE(cached.kernel_knows(now));
  here_->kernel.attributes.clear();
  const auto opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(here_->kernel.attributes, std::vector{inode});
  close(*here_, opened->handle);
}

TEST_F(CachedAttributesTest, WhatAnOpenHasFetchedAnswersForASecond) {
  const auto inode = make_closed(*here_, "a", "text");
  const auto opened = open(*here_, inode, O_RDWR);
  ASSERT_TRUE(opened.ok());
  uint64_t before = calls("meta.stat");
  EXPECT_EQ(attributes(*here_, inode).length, 4u);
  EXPECT_TRUE(write(*here_, opened->handle, 4, "more").ok());
  const auto written = attributes(*here_, inode);
  EXPECT_EQ(written.length, 8u);
  EXPECT_EQ(calls("meta.stat"), before);
  ASSERT_TRUE(io::ok(run(here_->operations.flush(opened->handle))));
  EXPECT_EQ(attributes(*here_, inode).mtime_ns, stored(inode).mtime_ns);
  // A change through this mount ends it, and so does the attribute timeout.
  Operations::SetAttributes change{.to = {.mode = 0600}};
  ASSERT_TRUE(run(here_->operations.setattr({}, inode, std::move(change))).ok());
  EXPECT_EQ(attributes(*here_, inode).mode, 0600u);
  close(*here_, opened->handle);
  const auto again = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(again.ok());
  pass(kCacheTimeoutNs);
  before = calls("meta.stat");
  EXPECT_EQ(attributes(*here_, inode).mode, 0600u);
  EXPECT_EQ(calls("meta.stat"), before + 1);
  close(*here_, again->handle);
}

// cp -a sets the access control list of each file.
TEST_F(CachedAttributesTest, ExtendedAttributesThatAreNeverStoredNeedNoCall) {
  const auto inode = make_closed(*here_, "a", "text");
  const std::string name = "system.posix_acl_access";
  const auto set = [&](std::optional<std::string> value) {
    return run(here_->operations.set_xattr({}, inode, name, std::move(value),
                                           meta::Namespace::XattrMode::any));
  };
  EXPECT_EQ(set("list").error().sys, EOPNOTSUPP);
  EXPECT_EQ(set(std::nullopt).error().sys, EOPNOTSUPP);
  const auto got = run(here_->operations.get_xattr({}, inode, "security.capability"));
  EXPECT_EQ(got.error().sys, EOPNOTSUPP);
  EXPECT_EQ(calls("meta.set_xattr", "unsupported"), 0u);
  EXPECT_EQ(calls("meta.get_xattr", "unsupported"), 0u);
}

TEST_F(CachedAttributesTest, LinksMadeWhileAFileIsOpenAreCounted) {
  const auto inode = make_closed(*here_, "a", "text");
  const auto opened = open(*here_, inode, O_RDONLY);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(run(here_->operations.link({}, inode, meta::kRoot, "b")).ok());
  EXPECT_EQ(attributes(*here_, inode).links, 2u);
  ASSERT_TRUE(run(here_->operations.unlink({}, meta::kRoot, "a")).ok());
  EXPECT_EQ(attributes(*here_, inode).links, 1u);
  close(*here_, opened->handle);
}

TEST_F(CachedAttributesTest, ARenamedFileLeavesTheAttributesOfItsDirectories) {
  meta::Namespace::CreateOptions how{.kind = meta::InodeType::directory, .mode = 0755};
  const auto dir = run(here_->operations.mknod({}, meta::kRoot, "dir", std::move(how)));
  ASSERT_TRUE(dir.ok());
  const auto inode = make_closed(*here_, "a", "text");
  (void)attributes(*here_, meta::kRoot);
  (void)attributes(*here_, dir->id);
  const auto rename = [&](std::string from, meta::InodeId to_dir, std::string to) {
    Operations::Rename move{.from_dir = meta::kRoot, .from = from, .to_dir = to_dir, .to = to};
    return run(here_->operations.rename({}, std::move(move)));
  };
  const auto same = [&](meta::InodeId one) {
    const meta::Inode known = attributes(*here_, one);
    const meta::Inode right = stored(one);
    EXPECT_EQ(known.mtime_ns, right.mtime_ns);
    EXPECT_EQ(known.ctime_ns, right.ctime_ns);
    EXPECT_EQ(known.links, right.links);
  };
  const uint64_t before = calls("meta.stat");
  ASSERT_TRUE(io::ok(rename("a", meta::kRoot, "b")));
  ASSERT_TRUE(io::ok(rename("b", dir->id, "c")));
  (void)attributes(*here_, meta::kRoot);
  (void)attributes(*here_, dir->id);
  EXPECT_EQ(calls("meta.stat"), before);
  same(meta::kRoot);
  same(dir->id);
  // Both names lead to one inode: nothing changes, and both stay.
  ASSERT_TRUE(run(here_->operations.link({}, inode, meta::kRoot, "e")).ok());
  ASSERT_TRUE(run(here_->operations.link({}, inode, meta::kRoot, "f")).ok());
  Operations::SetAttributes change{.to = {.mode = 0600}};
  ASSERT_TRUE(run(here_->operations.setattr({}, inode, std::move(change))).ok());
  ASSERT_TRUE(io::ok(rename("e", meta::kRoot, "f")));
  same(meta::kRoot);
}

TEST_F(CachedAttributesTest, AnOpenedDirectoryNeedsNoCallWhileItsAttributesAreRecent) {
  (void)attributes(*here_, meta::kRoot);
  const uint64_t before = calls("meta.open");
  const auto handle = run(here_->operations.open_dir({}, meta::kRoot));
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(calls("meta.open"), before);
  Operations::SetAttributes change{.to = {.mode = 0700}};
  ASSERT_TRUE(run(here_->operations.setattr({}, meta::kRoot, std::move(change))).ok());
  const auto refused = run(here_->operations.open_dir({.uid = 7, .gid = 7}, meta::kRoot));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().sys, EACCES);
}

TEST_F(CachedAttributesTest, AListingOfNamesFetchesNoInodes) {
  (void)make_closed(*here_, "a", "text");
  const auto handle = run(here_->operations.open_dir({}, meta::kRoot));
  ASSERT_TRUE(handle.ok());
  for (const bool with_inodes : {false, true}) {
    const auto listed = run(here_->operations.directory(*handle)->read(0, with_inodes));
    ASSERT_TRUE(listed.ok());
    ASSERT_EQ(listed->back()->listed.name, "a");
    EXPECT_EQ(listed->back()->listed.view.has_value(), with_inodes);
  }
}

}  // namespace
}  // namespace ff::mount

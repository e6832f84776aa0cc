// BeneathDisk: no path leaves the directory, by symbolic links, by "..", or by a directory that
// another process replaces by a link again and again. That it is a Disk, system_conformance_test.cc
// shows.
#include "platform/io/beneath_disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <thread>

#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::io {
namespace {

namespace fs = std::filesystem;

// "in" is the directory of the disk; "out", beside it, must stay as it is.
class BeneathDiskTest : public testing::Test {
 protected:
  BeneathDiskTest() {
    fs::create_directories(dir_ / "in/sub");
    fs::create_directories(dir_ / "out");
    disk_ = std::move(BeneathDisk::open(in()).value());
  }
  std::string in(const std::string& name = "") const {
    return name.empty() ? dir_ / "in" : dir_ / ("in/" + name);
  }
  std::string out(const std::string& name) const { return dir_ / ("out/" + name); }
  Result<void> write(const std::string& path) {
    FF_TRY(const auto file, disk_->open(path, {.access = AccessMode::write, .create = true}));
    return file->write_at(as_bytes(std::string_view("x")), 0);
  }
  // Every operation on `path`, and how it ended.
  std::vector<Result<void>> try_all(const std::string& path) {
    const auto done = [](const auto& result) {
      return result.ok() ? Result<void>() : Result<void>(result.error());
    };
    return {write(path),
            done(disk_->info(path)),
            disk_->make_dir(path, 0755),
            disk_->make_symlink("x", path),
            disk_->set_mode(path, 0600),
            disk_->set_mtime(path, 0),
            disk_->set_owner(path, ::geteuid(), ::getegid()),
            disk_->rename(in("own"), path),
            disk_->link(in("own"), path),
            disk_->remove(path),
            disk_->remove_dir(path)};
  }
  void expect_nothing_outside() {
    EXPECT_TRUE(fs::is_empty(dir_ / "out"));
    for (const auto& entry : fs::directory_iterator(dir_.path())) {
      EXPECT_TRUE(entry.path() == in() || entry.path() == dir_ / "out") << entry.path();
    }
  }

  TempDir dir_;
  std::unique_ptr<BeneathDisk> disk_;
};

TEST_F(BeneathDiskTest, NoLinkIsFollowedOnTheWay) {
  fs::create_directory_symlink(dir_ / "out", in("away"));
  fs::create_directory_symlink("sub", in("inside"));
  ASSERT_TRUE(write(in("own")).ok());
  for (const std::string& dir : {in("away"), in("inside"), in("sub/../away")}) {
    for (const auto& result : try_all(dir + "/x")) {
      ASSERT_FALSE(result.ok()) << dir;
      EXPECT_TRUE(result.error().sys == ELOOP || result.error().sys == ENOTDIR)
          << result.error().message;
    }
  }
  EXPECT_EQ(disk_->list(in("away")).error().sys, ELOOP);
  EXPECT_EQ(disk_->sync_dir(in("away")).error().sys, ELOOP);
  expect_nothing_outside();
  EXPECT_TRUE(fs::is_empty(in("sub")));
}

TEST_F(BeneathDiskTest, NoLinkIsFollowedAtTheEnd) {
  fs::create_symlink(out("file"), in("link"));
  EXPECT_EQ(write(in("link")).error().sys, ELOOP);
  EXPECT_EQ(disk_->info(in("link"))->kind, FileKind::symlink);
  EXPECT_EQ(*disk_->read_symlink(in("link")), out("file"));
  EXPECT_TRUE(disk_->set_mtime(in("link"), 0).ok());  // of the link
  EXPECT_TRUE(disk_->set_owner(in("link"), ::geteuid(), {}).ok());
  EXPECT_TRUE(disk_->remove(in("link")).ok());
  expect_nothing_outside();
}

TEST_F(BeneathDiskTest, WhatIsNotBelowIsRefused) {
  ASSERT_TRUE(write(in("own")).ok());
  for (const std::string& path : {out("x"), dir_ / "in2", dir_.path(), std::string("/"),
                                  std::string("x"), std::string(), in("..")}) {
    for (const auto& result : try_all(path)) {
      ASSERT_FALSE(result.ok()) << path;
      EXPECT_EQ(result.error().code, Errc::usage) << result.error().message;
    }
  }
  for (const std::string& path : {in("../out/x"), in("sub/../../out/x")}) {
    for (const auto& result : try_all(path)) {
      ASSERT_FALSE(result.ok()) << path;
      EXPECT_EQ(result.error().sys, EXDEV) << result.error().message;
    }
  }
  expect_nothing_outside();
}

TEST_F(BeneathDiskTest, TheDirectoryItselfMayBeALink) {
  fs::create_directory_symlink(in(), dir_ / "out/in");
  disk_ = std::move(BeneathDisk::open(out("in/")).value());
  EXPECT_TRUE(write(out("in/x")).ok());
  EXPECT_TRUE(fs::exists(in("x")));
  EXPECT_EQ(disk_->info(out("in"))->kind, FileKind::directory);
  EXPECT_EQ(disk_->list(out("in"))->size(), 2u);
  EXPECT_TRUE(disk_->sync_dir(out("in")).ok());
  EXPECT_TRUE(disk_->set_mode(out("in"), 0700).ok());
  EXPECT_EQ(fs::status(in()).permissions(), fs::perms::owner_all);
}

// A directory that is a directory at one moment and a link out at the next.
TEST_F(BeneathDiskTest, AProcessThatSwapsADirectoryWinsNothing) {
  std::atomic<bool> ends = false;
  std::thread swapper([&] {
    const std::string sub = in("sub");
    const std::string spare = in("spare");
    fs::create_directory_symlink(dir_ / "out", spare);
    while (!ends)
      (void)::renameat2(AT_FDCWD, sub.c_str(), AT_FDCWD, spare.c_str(), RENAME_EXCHANGE);
  });
  int written = 0;
  int refused = 0;
  for (int i = 0; i < 200'000 && (written < 200 || refused < 200); i++) {
    const auto done = write(in("sub/x"));
    (done.ok() ? written : refused)++;
    if (done.ok()) (void)disk_->remove(in("sub/x"));
  }
  ends = true;
  swapper.join();
  EXPECT_GE(written, 200);
  EXPECT_GE(refused, 200);
  EXPECT_TRUE(fs::is_empty(dir_ / "out"));
}

}  // namespace
}  // namespace ff::io

// Damages the metadata in every way that fsck knows: fsck finds it, changes nothing without
// --repair, and repairs it.
#include "storage/meta/fsck.h"

#include "storage/client/file_system_world.h"
#include "storage/meta/records.h"

namespace ff::client {
namespace {

using meta::Inode;
using meta::InodeType;
namespace keys = meta::keys;

class FsckTest : public FileSystemWorld {
 protected:
  void SetUp() override {
    FileSystemWorld::SetUp();
    file_ = make("file", "content");
    dir_ = mkdir(meta::kRoot, "dir");
    below_ = mkdir(dir_, "below");
    pass(3 * kSecond);
    EXPECT_EQ(fsck().problems(), 0u);
  }
  uint64_t mkdir(uint64_t dir, std::string name) {
    auto made =
        run(metadata().create({}, {.id = dir}, name, {.kind = InodeType::directory, .mode = 0755}));
    EXPECT_TRUE(io::ok(made));
    return made ? made->inode.id : 0;
  }
  void write(kv::TxnFunction function) {
    ASSERT_TRUE(io::ok(run(store_.run(std::move(function), INT64_MAX))));
  }
  void erase(std::string key) {
    write([key](kv::Txn& txn) -> Task<Result<void>> {
      txn.erase(key);
      co_return Result<void>();
    });
  }
  void put(std::string key, std::string value) {
    write([key, value](kv::Txn& txn) -> Task<Result<void>> {
      txn.put(key, value);
      co_return Result<void>();
    });
  }
  void change(uint64_t inode, std::function<void(Inode&)> how) {
    write([inode, how](kv::Txn& txn) -> Task<Result<void>> {
      FF_CO_TRY(Inode record, co_await meta::read_inode(txn, inode));
      how(record);
      meta::put_inode(txn, record);
      co_return Result<void>();
    });
  }
  void name(uint64_t dir, std::string name, uint64_t inode, InodeType kind) {
    write([=](kv::Txn& txn) -> Task<Result<void>> {
      meta::put_dentry(txn, dir, name, {inode, kind});
      meta::touch_dir(txn, dir, 1);
      co_return Result<void>();
    });
  }
  void unname(uint64_t dir, std::string name) {
    write([=](kv::Txn& txn) -> Task<Result<void>> {
      txn.erase(keys::dentry(dir, name));
      meta::touch_dir(txn, dir, 1);
      co_return Result<void>();
    });
  }
  // Found and unchanged; then repaired by one run or the next.
  void expect(std::string_view kind) {
    const auto found = fsck();
    bool told = false;
    for (const auto& problem : found.told()) told |= problem.kind() == kind;
    EXPECT_TRUE(told) << kind << " is not among " << found.told_size();
    EXPECT_EQ(fsck().problems(), found.problems());
    for (int i = 0; i < 3 && fsck().problems() > 0; i++) fsck(true);
    const auto left = fsck();
    EXPECT_EQ(left.problems(), 0u) << (left.told_size() > 0 ? left.told(0).text() : "");
  }
  bool there(const std::string& path) {
    const auto walked = run(metadata().walk({}, meta::root(), path, true));
    return walked.ok() && walked->found;
  }

  uint64_t file_ = 0, dir_ = 0, below_ = 0;
};

TEST_F(FsckTest, ANameOfNothing) {
  name(dir_, "ghost", 999, InodeType::file);
  expect("dangling-name");
  EXPECT_FALSE(there("/dir/ghost"));
}

TEST_F(FsckTest, AnInodeThatIsNotThere) {
  erase(keys::inode(file_));
  expect("dangling-name");
  EXPECT_FALSE(there("/file"));
}

TEST_F(FsckTest, WrongCounts) {
  change(file_, [](Inode& inode) { inode.links = 7; });
  expect("wrong-links");
  change(dir_, [](Inode& inode) { inode.links = 2; });
  expect("wrong-links");
  change(file_, [](Inode& inode) { inode.xattrs = 3; });
  expect("wrong-xattrs");
}

TEST_F(FsckTest, WhatHasLostItsName) {
  unname(meta::kRoot, "file");
  expect("lost");
  EXPECT_TRUE(there(fmt::format("/lost+found/#{}", file_)));
  unname(dir_, "below");
  expect("lost");
  EXPECT_TRUE(there(fmt::format("/lost+found/#{}", below_)));
}

TEST_F(FsckTest, DirectoriesInACircle) {
  unname(meta::kRoot, "dir");
  name(below_, "dir", dir_, InodeType::directory);
  expect("lost");
}

TEST_F(FsckTest, WhatHangsOnACircle) {
  const uint64_t high = mkdir(below_, "high");
  unname(meta::kRoot, "dir");
  name(high, "dir", dir_, InodeType::directory);
  const uint64_t low = mkdir(dir_, "low");
  ASSERT_GT(low, high);
  expect("lost");
  EXPECT_EQ(run(metadata().stat({.id = low}, false))->inode.links, 2u);
}

TEST_F(FsckTest, DirectoriesOfTwoPlaces) {
  name(meta::kRoot, "again", below_, InodeType::directory);
  expect("second-name");
  change(below_, [this](Inode& inode) { inode.parent = file_; });
  expect("wrong-parent");
}

TEST_F(FsckTest, ADirectoryThatIsNotThere) {
  erase(keys::inode(below_));
  name(below_, "inside", file_, InodeType::file);
  expect("name-nowhere");
}

TEST_F(FsckTest, KindsTimesAndStrayRecords) {
  name(meta::kRoot, "file", file_, InodeType::fifo);
  expect("wrong-kind");
  erase(keys::times(dir_));
  expect("missing-times");
  put(keys::of(keys::kXattr, 999, "user.x"), "y");
  expect("stray-record");
  put(keys::of(keys::kGarbage, 5, file_), "");
  expect("stray-record");
  put(keys::session(999, {.client = 1, .number = 1}), "");
  expect("stray-record");
}

TEST_F(FsckTest, NothingThatNobodyCollects) {
  change(file_, [](Inode& inode) { inode.links = 0; });
  unname(meta::kRoot, "file");
  expect("not-collected");
  EXPECT_TRUE(eventually([&] { return stored() == 0; }));
}

TEST_F(FsckTest, ChunksWithoutAFile) {
  unname(meta::kRoot, "file");
  erase(keys::inode(file_));
  // First seen too recently: reported only.
  EXPECT_EQ(fsck(true, 3600 * kSecond).problems(), 1u);
  EXPECT_EQ(stored(), 1u);
  EXPECT_EQ(fsck(true, 3600 * kSecond).told(0).kind(), "orphan-chunks");
  pass(2 * kSecond);
  EXPECT_TRUE(fsck(true, kSecond).told(0).repaired());
  EXPECT_EQ(stored(), 0u);
  EXPECT_EQ(fsck().problems(), 0u);
}

TEST_F(FsckTest, RecordsThatCannotBeRead) {
  put(keys::inode(5000), "\xff\xff\xff");
  const auto found = fsck(true);
  ASSERT_EQ(found.problems(), 1u);
  EXPECT_EQ(found.told(0).kind(), "unreadable");
  EXPECT_FALSE(found.told(0).repaired());
}

}  // namespace
}  // namespace ff::client

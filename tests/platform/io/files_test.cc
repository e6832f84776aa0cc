// Operations on whole files and trees on the file system of the machine.
// tests/platform/sim/files_power_loss_test.cc shows that replace_file() survives a power loss.
#include "platform/io/files.h"

#include <gtest/gtest.h>

#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::io {
namespace {

class FilesTest : public testing::Test {
 protected:
  SystemDisk disk_;
  TempDir dir_;
};

TEST(PathTest, Join) {
  EXPECT_EQ(join("a", "b"), "a/b");
  EXPECT_EQ(join("a/", "b"), "a/b");
  EXPECT_EQ(join("/", "b"), "/b");
  EXPECT_EQ(join("", "b"), "b");
}

TEST(PathTest, Parent) {
  EXPECT_EQ(parent("a/b/c"), "a/b");
  EXPECT_EQ(parent("a//b"), "a");
  EXPECT_EQ(parent("a/b/"), "a");
  EXPECT_EQ(parent("c"), ".");
  EXPECT_EQ(parent("/c"), "/");
  EXPECT_EQ(parent("//c"), "/");
  EXPECT_EQ(parent("/"), "/");
  EXPECT_EQ(parent(""), ".");
}

TEST(PathTest, BaseName) {
  EXPECT_EQ(base_name("a/b/c"), "c");
  EXPECT_EQ(base_name("a/b/"), "b");
  EXPECT_EQ(base_name("c"), "c");
  EXPECT_EQ(base_name("/c"), "c");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(base_name(""), "");
}

TEST_F(FilesTest, ReadFileUpToTheLimit) {
  for (const size_t size : {0u, 1u, 65535u, 65536u, 65537u, 300000u}) {
    SCOPED_TRACE(size);
    const auto bytes = random_bytes(size, size);
    ASSERT_TRUE(ok(put(disk_, dir_ / "file", as_text(bytes))));
    const auto content = read_file(disk_, dir_ / "file", size);
    ASSERT_TRUE(ok(content));
    EXPECT_TRUE(*content == as_text(bytes));
    if (size == 0) continue;
    EXPECT_EQ(code_of(read_file(disk_, dir_ / "file", size - 1)), Errc::failed);
  }
  EXPECT_EQ(code_of(read_file(disk_, dir_ / "none", 10)), Errc::not_found);
}

TEST_F(FilesTest, ReadFileThatHidesItsSize) {
  const auto content = read_file(disk_, "/proc/self/status", kMiB);
  ASSERT_TRUE(ok(content));
  EXPECT_NE(content->find("Pid:"), std::string::npos);
}

TEST_F(FilesTest, ReplaceFile) {
  const std::string path = dir_ / "file";
  ASSERT_TRUE(ok(replace_file(disk_, path, "first, and longer", "one")));
  EXPECT_EQ(get(disk_, path), "first, and longer");
  ASSERT_TRUE(ok(put(disk_, path + ".two.tmp", "left behind by a crash, much longer")));
  ASSERT_TRUE(ok(replace_file(disk_, path, "second", "two")));
  EXPECT_EQ(get(disk_, path), "second");
  EXPECT_EQ(disk_.list(dir_.path())->size(), 1u);
  // A failure leaves nothing behind.
  ASSERT_TRUE(ok(make_dirs(disk_, dir_ / "dir/full")));
  EXPECT_FALSE(replace_file(disk_, dir_ / "dir", "x", "three").ok());
  EXPECT_FALSE(*exists(disk_, dir_ / "dir.three.tmp"));
  EXPECT_EQ(code_of(replace_file(disk_, dir_ / "none/file", "x", "four")), Errc::not_found);
}

TEST_F(FilesTest, MakeDirs) {
  ASSERT_TRUE(ok(make_dirs(disk_, dir_ / "a/b/c", 0700)));
  EXPECT_EQ(disk_.info(dir_ / "a/b/c")->mode, 0700u);
  EXPECT_TRUE(ok(make_dirs(disk_, dir_ / "a/b/c")));
  EXPECT_TRUE(ok(make_dirs(disk_, dir_ / "a/x//y/")));
  EXPECT_TRUE(*exists(disk_, dir_ / "a/x/y"));
  EXPECT_TRUE(ok(make_dirs(disk_, "/")));
  EXPECT_TRUE(ok(make_dirs(disk_, ".")));
  ASSERT_TRUE(ok(disk_.make_symlink("a", dir_ / "link")));
  EXPECT_TRUE(ok(make_dirs(disk_, dir_ / "link")));
  EXPECT_TRUE(ok(make_dirs(disk_, dir_ / "link/z")));
  EXPECT_TRUE(*exists(disk_, dir_ / "a/z"));
  ASSERT_TRUE(ok(put(disk_, dir_ / "file", "")));
  EXPECT_FALSE(make_dirs(disk_, dir_ / "file").ok());
  EXPECT_FALSE(make_dirs(disk_, dir_ / "file/below").ok());
  ASSERT_TRUE(ok(disk_.make_symlink("nowhere", dir_ / "dangling")));
  EXPECT_EQ(code_of(make_dirs(disk_, dir_ / "dangling")), Errc::exists);
}

TEST_F(FilesTest, RemoveTreeNeverFollowsLinks) {
  ASSERT_TRUE(ok(make_dirs(disk_, dir_ / "keep")));
  ASSERT_TRUE(ok(put(disk_, dir_ / "keep/file", "kept")));
  ASSERT_TRUE(ok(make_dirs(disk_, dir_ / "tree/a/b")));
  ASSERT_TRUE(ok(put(disk_, dir_ / "tree/a/file", "")));
  ASSERT_TRUE(ok(disk_.make_symlink("../keep", dir_ / "tree/link")));
  EXPECT_TRUE(ok(remove_tree(disk_, dir_ / "tree")));
  EXPECT_FALSE(*exists(disk_, dir_ / "tree"));
  EXPECT_EQ(get(disk_, dir_ / "keep/file"), "kept");
  ASSERT_TRUE(ok(disk_.make_symlink("keep", dir_ / "link")));
  EXPECT_TRUE(ok(remove_tree(disk_, dir_ / "link")));
  EXPECT_EQ(get(disk_, dir_ / "keep/file"), "kept");
  EXPECT_TRUE(ok(remove_tree(disk_, dir_ / "none")));
}

TEST_F(FilesTest, ExistsCountsDanglingLinks) {
  ASSERT_TRUE(ok(disk_.make_symlink("nowhere", dir_ / "dangling")));
  EXPECT_TRUE(*exists(disk_, dir_ / "dangling"));
  EXPECT_FALSE(*exists(disk_, dir_ / "none"));
}

}  // namespace
}  // namespace ff::io

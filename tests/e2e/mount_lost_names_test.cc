// What fsync(2) says of names and attributes that the metadata server has answered, and has not any
// more: its disk is put back to what it was before, as a loss of power leaves it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

int fsync_of(int file) { return ::fsync(file) == 0 ? 0 : errno; }

class MountLostNamesTest : public MountTest {
 protected:
  int open(const std::string& path, int flags) {
    const int file = ::open(path.c_str(), flags, 0644);
    EXPECT_GE(file, 0) << path << ": " << errno;
    files_.push_back(file);
    return file;
  }
  int open_dir(const std::string& path) { return open(path, O_RDONLY | O_DIRECTORY); }
  void TearDown() override {
    for (const int file : files_) ::close(file);
  }
  static bool there(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

 private:
  std::vector<int> files_;
};

TEST_F(MountLostNamesTest, AnFsyncDoesNotConfirmWhatTheServerHasLost) {
  LocalCluster cluster;
  Mount mount(cluster.address(), at("mnt"));
  const std::vector<std::string> all = {"rename", "create", "unlink", "replace",
                                        "chmod",  "length", "quiet"};
  std::vector<int> dirs;
  for (const std::string& name : all) {
    ASSERT_EQ(::mkdir((mount / name).c_str(), 0755), 0);
    dirs.push_back(open_dir(mount / name));
    put(mount / (name + "/a"), "one");
    put(mount / (name + "/b"), "two");
    ASSERT_EQ(fsync_of(dirs.back()), 0);
  }
  const int moded = open(mount / "chmod/a", O_RDONLY);
  const int grown = open(mount / "length/a", O_RDWR | O_APPEND);
  ASSERT_EQ(fsync_of(open_dir(mount.dir())), 0);
  cluster.snapshot_meta_disk();

  ASSERT_EQ(::rename((mount / "rename/a").c_str(), (mount / "rename/c").c_str()), 0);
  const int created = open(mount / "create/new", O_RDWR | O_CREAT);
  ASSERT_EQ(::unlink((mount / "unlink/a").c_str()), 0);
  ASSERT_EQ(::rename((mount / "replace/a").c_str(), (mount / "replace/b").c_str()), 0);
  ASSERT_EQ(::fchmod(moded, 0600), 0);
  const int longer = ::open((mount / "length/b").c_str(), O_WRONLY);
  ASSERT_EQ(::pwrite(longer, "three", 5, 3), 5);
  ASSERT_EQ(::close(longer), 0);  // the server knows the length
  ASSERT_EQ(::mkdir((mount / "dir").c_str(), 0755), 0);

  cluster.kill_meta();
  cluster.restore_meta_disk();
  cluster.start_meta();
  for (size_t i = 0; i < 4; i++) EXPECT_EQ(fsync_of(dirs[i]), EIO) << all[i];
  EXPECT_EQ(fsync_of(moded), EIO);
  EXPECT_NE(fsync_of(created), 0);
  // Who opens it only now learns of it, too.
  EXPECT_EQ(fsync_of(open_dir(mount.dir())), EIO);
  // It was told again: the writer knows it.
  EXPECT_EQ(fsync_of(grown), 0);
  EXPECT_EQ(fsync_of(dirs[5]), 0);
  EXPECT_EQ(fsync_of(dirs[6]), 0);
  for (const int dir : dirs) EXPECT_EQ(fsync_of(dir), 0);  // once
  {
    const Mount other(cluster.address(), at("other"));
    EXPECT_EQ(get(other / "length/b"), "twothree");
    EXPECT_TRUE(there(other / "rename/a"));
    EXPECT_FALSE(there(other / "create/new"));
    EXPECT_TRUE(there(other / "unlink/a"));
    EXPECT_EQ(get(other / "replace/b"), "two");
  }

  // A server that has lost nothing has nothing to tell.
  ASSERT_EQ(::rename((mount / "quiet/a").c_str(), (mount / "quiet/c").c_str()), 0);
  put(mount / "quiet/new", "four");
  cluster.kill_meta();
  cluster.start_meta();
  EXPECT_EQ(fsync_of(dirs[6]), 0);
  EXPECT_EQ(fsync_of(open(mount / "quiet/new", O_RDONLY)), 0);
}

}  // namespace
}  // namespace ff::test

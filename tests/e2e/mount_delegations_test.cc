// Two mounts with --delegations on one cluster of real daemons, which change one directory
// alternately and at once: nothing is lost and nothing doubled; also when one is killed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

constexpr int kFiles = 60;

class MountDelegationsTest : public MountTest {
 protected:
  static bool make(const std::string& path) {
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return false;
    EXPECT_EQ(::write(file, path.data(), path.size()), static_cast<ssize_t>(path.size()));
    EXPECT_EQ(::close(file), 0);
    return true;
  }
  static std::set<std::string> names(const std::string& dir) {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
      EXPECT_TRUE(all.insert(entry.path().filename()).second) << entry.path();
    }
    return all;
  }
  static void check_fsck(LocalCluster& cluster) {
    const ProcessResult checked = cluster.admin({"fsck"});
    EXPECT_EQ(checked.exit, 0) << checked.out << checked.err;
  }
};

TEST_F(MountDelegationsTest, TwoMountsChangeOneDirectory) {
  LocalCluster cluster;
  Mount a(cluster.address(), at("a"), {"--delegations"});
  Mount b(cluster.address(), at("b"), {"--delegations"});
  ASSERT_EQ(::mkdir((a / "dir").c_str(), 0755), 0);
  // Alternately: each sees at once what the other has done.
  for (int i = 0; i < kFiles; i++) {
    const Mount& one = i / 5 % 2 == 0 ? a : b;
    const Mount& other = i / 5 % 2 == 0 ? b : a;
    const std::string name = fmt::format("dir/turn{}", i);
    EXPECT_TRUE(make(one / name));
    EXPECT_FALSE(make(other / name));
    EXPECT_EQ(get(other / name), one / name);
    if (i % 3 == 1) {
      EXPECT_EQ(::rename((other / name).c_str(), (other / (name + ".new")).c_str()), 0);
      EXPECT_EQ(get(one / (name + ".new")), one / name);
    }
    if (i % 3 == 2) {
      EXPECT_EQ(::unlink((other / name).c_str()), 0);
      EXPECT_EQ(::access((other / name).c_str(), F_OK), -1);
    }
  }
  // At once: each name is made by one of the two, and removed by one of the two.
  std::atomic<int> made = 0;
  std::atomic<int> removed = 0;
  const auto work = [&](const Mount& mount) {
    for (int i = 0; i < kFiles; i++) made += make(mount / fmt::format("dir/x{}", i)) ? 1 : 0;
    for (int i = 0; i < kFiles; i += 2) {
      removed += ::unlink((mount / fmt::format("dir/x{}", i)).c_str()) == 0 ? 1 : 0;
    }
  };
  std::thread second(work, std::cref(b));
  work(a);
  second.join();
  EXPECT_GE(made, kFiles);
  EXPECT_EQ(made - removed, kFiles / 2);
  const auto all = names(a / "dir");
  EXPECT_EQ(all, names(b / "dir"));
  EXPECT_EQ(all.size(), 2u * kFiles / 3 + kFiles / 2);
  check_fsck(cluster);
}

TEST_F(MountDelegationsTest, AKilledMountLosesOnlyWhatWasNotSynced) {
  LocalCluster cluster;
  Mount a(cluster.address(), at("a"), {"--delegations"});
  Mount b(cluster.address(), at("b"), {"--delegations"});
  ASSERT_EQ(::mkdir((a / "dir").c_str(), 0755), 0);
  for (int i = 0; i < kFiles; i++) ASSERT_TRUE(make(a / fmt::format("dir/{}", i)));
  const int dir = ::open((a / "dir").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(dir, 0);
  EXPECT_EQ(::fsync(dir), 0);
  ::close(dir);
  (void)make(a / "dir/last");
  a.end(SIGKILL);
  // The other mount waits for the lease, and goes on.
  EXPECT_TRUE(make(b / "dir/next"));
  auto left = names(b / "dir");
  left.erase("last");
  EXPECT_EQ(left.size(), 1u + kFiles);
  EXPECT_EQ(get(b / "dir/0"), a / "dir/0");
  // Only bytes of "last" may be left, whose name nobody has got.
  const ProcessResult checked = cluster.admin({"fsck"});
  for (const char* const kind : {"dangling-name", "second-name", "wrong-links", "stray-record"}) {
    EXPECT_EQ(checked.out.find(kind), std::string::npos) << checked.out;
  }
}

}  // namespace
}  // namespace ff::test

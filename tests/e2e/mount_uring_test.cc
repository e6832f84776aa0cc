// The two ways on which requests of the kernel reach a mount: io_uring (Linux 6.14 and later, with
// fuse.enable_uring) and /dev/fuse. The other tests of mounts use what the machine is set to.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "e2e/local_cluster.h"
#include "e2e/mounts.h"

namespace ff::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSwitch = "/sys/module/fuse/parameters/enable_uring";

// Sets the switch of the machine while it exists; one test at a time.
class UringSwitch {
 public:
  explicit UringSwitch(char value) : fd_(::open(kSwitch, O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) return;
    EXPECT_EQ(::flock(fd_, LOCK_EX), 0);
    EXPECT_EQ(::pread(fd_, &before_, 1, 0), 1);
    EXPECT_EQ(::pwrite(fd_, &value, 1, 0), 1);
  }
  ~UringSwitch() {
    if (fd_ < 0) return;
    EXPECT_EQ(::pwrite(fd_, &before_, 1, 0), 1);
    ::close(fd_);
  }
  UringSwitch(const UringSwitch&) = delete;
  UringSwitch& operator=(const UringSwitch&) = delete;
  bool exists() const { return fd_ >= 0; }

 private:
  const int fd_;
  char before_ = 'N';
};

class MountUringTest : public MountTest {
 protected:
  // Whether the machine can run a mount over io_uring.
  static bool offered(const UringSwitch& on, const Mount& mount) {
    return on.exists() && !mount.logged("sysctl");
  }
};

TEST_F(MountUringTest, WithoutTheSwitchRequestsComeThroughTheDevice) {
  const UringSwitch off('N');
  const Mount mount(shared_cluster().address(), at("mnt"));
  EXPECT_TRUE(mount.logs(off.exists() ? "echo Y > /sys/module/fuse" : "Linux 6.14"));
  EXPECT_TRUE(mount.logged("through /dev/fuse"));
  put(mount / "device", bytes(1, 3000000));
  EXPECT_EQ(get(mount / "device"), bytes(1, 3000000));
}

TEST_F(MountUringTest, AnOptionTurnsItOff) {
  const UringSwitch on('Y');
  const Mount mount(shared_cluster().address(), at("mnt"), {"--no-io-uring"});
  EXPECT_TRUE(mount.logs("through /dev/fuse"));
  EXPECT_TRUE(mount.logged("--no-io-uring"));
}

TEST_F(MountUringTest, TooLittleMemoryIsNamed) {
  const UringSwitch on('Y');
  const Mount mount(shared_cluster().address(), at("mnt"), {"--memory", "72MiB"});
  EXPECT_TRUE(mount.logs("through /dev/fuse"));
  if (offered(on, mount)) {
    EXPECT_TRUE(mount.logged("--memory")) << "for so many CPUs";
  }
}

TEST_F(MountUringTest, RequestsComeOverIoUring) {
  const UringSwitch on('Y');
  Mount mount(shared_cluster().address(), at("mnt"));
  EXPECT_TRUE(mount.logs("requests come "));
  if (!offered(on, mount)) GTEST_SKIP() << "io_uring cannot be used here";
  EXPECT_TRUE(mount.logged("over io_uring"));
  Child corners(
      Launch{.argv = {"python3", std::string(FF_SOURCE_DIR) + "/tests/storage/mount/corners.py",
                      mount.dir()}});
  EXPECT_EQ(corners.finish(), 0) << corners.out << corners.err;
  // More programs at once than a queue has entries.
  std::vector<std::thread> programs;
  for (uint64_t i = 0; i < 80; i++) {
    programs.emplace_back([&mount, i] {
      const std::string name = mount / std::to_string(i);
      for (const size_t size : {size_t{10}, size_t{100000}, size_t{1500000}}) {
        put(name, bytes(i, size));
        EXPECT_EQ(get(name), bytes(i, size));
        EXPECT_EQ(fs::file_size(name), size);
      }
      fs::remove(name);
    });
  }
  for (std::thread& one : programs) one.join();
  EXPECT_EQ(mount.end(SIGTERM), 0);
}

// A queue that has no entry left gets no further requests, not even those that must end before the
// kernel can drop pages. With four entries a CPU, direct writes soon occupy all of them; each has
// the page of its file dropped, which a reader has locked whose request waits for an entry.
TEST_F(MountUringTest, RequestsThatDropPagesDoNotWaitForAnEntryForever) {
  constexpr size_t kPage = 4096;
  constexpr size_t kFiles = 12;
  constexpr int kTurns = 60;
  const UringSwitch on('Y');
  const auto cpus = static_cast<size_t>(::sysconf(_SC_NPROCESSORS_CONF));
  const size_t memory = (cpus * 4 + 8) * ((1 << 20) + kPage) * 8 / (1 << 20) + 1;
  Mount mount(shared_cluster().address(), at("mnt"), {"--memory", std::to_string(memory) + "MiB"});
  EXPECT_TRUE(mount.logs("requests come "));
  if (!offered(on, mount)) GTEST_SKIP() << "io_uring cannot be used here";
  ASSERT_TRUE(mount.logged("entries=4")) << "for " << cpus << " CPUs";
  std::atomic<size_t> writing = kFiles;
  std::vector<std::thread> programs;
  for (size_t i = 0; i < kFiles; i++) {
    const std::string name = mount / std::to_string(i);
    put(name, bytes(i, kPage));
    programs.emplace_back([&writing, name] {
      const int file = ::open(name.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
      alignas(kPage) std::array<char, kPage> page = {};
      bool good = file >= 0;
      for (int turn = 0; turn < kTurns && good; turn++) {
        good = ::pwrite(file, page.data(), kPage, 0) == static_cast<ssize_t>(kPage);
      }
      EXPECT_TRUE(good) << std::strerror(errno);
      ::close(file);
      writing--;
    });
    programs.emplace_back([&writing, name] {
      const int file = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
      std::array<char, kPage> page = {};
      bool good = file >= 0;
      while (writing > 0 && good) {
        good = ::pread(file, page.data(), kPage, 0) == static_cast<ssize_t>(kPage);
      }
      EXPECT_TRUE(good) << std::strerror(errno);
      ::close(file);
    });
  }
  EXPECT_TRUE(eventually([&] { return writing == 0; })) << writing << " programs still write";
  if (writing > 0) (void)::umount2(mount.dir().c_str(), MNT_FORCE);  // their requests fail
  for (std::thread& one : programs) one.join();
  mount.end(SIGTERM);
}

TEST_F(MountUringTest, AKilledMountOverIoUringLeavesErrorsAndIsReplaced) {
  const UringSwitch on('Y');
  const std::string name = at("mnt") + "/killed";
  {
    Mount mount(shared_cluster().address(), at("mnt"));
    put(name, "text");
    const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    mount.end(SIGKILL);
    struct stat info = {};
    EXPECT_EQ(::stat(name.c_str(), &info), -1);  // it does not wait
    const Mount next(shared_cluster().address(), at("mnt"));
    EXPECT_EQ(get(name), "text");
    EXPECT_EQ(::fstat(fd, &info), -1);
    ::close(fd);
  }
}

}  // namespace
}  // namespace ff::test

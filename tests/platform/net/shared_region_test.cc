// Shared regions of both kinds: creation, lookup, removal, and that nothing is left behind.
#include "platform/net/shared_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "platform/net/shm_pair.h"

namespace ff::net {
namespace {

using Kind = SharedRegion::Kind;

// Mounts on huge pages: others come and go with the tests that run beside this one.
std::string huge_mounts() {
  std::ifstream in("/proc/self/mountinfo");
  std::string all;
  for (std::string line; std::getline(in, line);) {
    if (line.find("huge=always") != std::string::npos) all += line + "\n";
  }
  return all;
}

TEST(Regions, OfBothKindsAreZerosWithoutATrace) {
  const std::string mounts = huge_mounts();
  const size_t descriptors = open_descriptors();
  for (const Kind kind : {Kind::huge, Kind::sealed}) {
    if (kind == Kind::huge && !offers_huge()) continue;
    SharedRegionSet regions;
    auto made = regions.make(3 * kMiB + 1, kind);
    ASSERT_TRUE(made.ok());
    const SharedRegion& region = **made;
    EXPECT_EQ(region.kind(), kind);
    ASSERT_GE(region.memory().size(), 3 * kMiB + 1);
    for (const std::byte byte : region.memory()) ASSERT_EQ(byte, std::byte{});
    fill(region.memory(), 1);
    struct stat status;
    ASSERT_EQ(::fstat(region.fd(), &status), 0);
    EXPECT_EQ(static_cast<size_t>(status.st_size), region.memory().size());
    if (kind == Kind::huge) {
      EXPECT_EQ(status.st_blksize, 2 * kMiB) << "not on huge pages";
    } else {
      EXPECT_NE(::ftruncate(region.fd(), 0), 0);
      EXPECT_NE(::ftruncate(region.fd(), 1 << 30), 0);
      EXPECT_NE(::fcntl(region.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
    }
    EXPECT_EQ(huge_mounts(), mounts);
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(Regions, AProcessThatMayNotMountGetsASealedOne) {
  if (::getuid() != 0) GTEST_SKIP() << "only root can become somebody else";
  const pid_t child = ::fork();
  if (child == 0) {
    SharedRegionSet regions;
    if (::setuid(65534) != 0) ::_exit(1);
    if (regions.make(kMiB, Kind::huge).ok()) ::_exit(2);
    if (regions.make(kMiB, Kind::huge).error().code != Errc::refused) ::_exit(3);
    auto made = regions.make(kMiB);
    if (!made || (*made)->kind() != Kind::sealed) ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Regions, AreFoundByWhatLiesWhollyInThem) {
  SharedRegionSet regions;
  auto a = regions.make(kMiB, Kind::sealed);
  auto b = regions.make(kMiB, Kind::sealed);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->id(), (*b)->id());
  for (const auto& region : {*a, *b}) {
    const ByteView all = region->memory();
    EXPECT_EQ(regions.find(all), region);
    EXPECT_EQ(regions.find(all.first(1)), region);
    EXPECT_EQ(regions.find(all.last(1)), region);
    EXPECT_NE(regions.find(ByteView(all.data() - 1, 2)), region);
    EXPECT_EQ(regions.find(ByteView(all.data() + all.size() - 1, 2)), nullptr);
    EXPECT_EQ(regions.find(ByteView(all.data() + 1, SIZE_MAX)), nullptr);
  }
  regions.remove(**a);
  EXPECT_EQ(regions.find((*a)->memory()), nullptr);
  EXPECT_EQ(regions.find((*b)->memory()), *b);
  EXPECT_EQ(regions.make(UINT64_MAX - 5, Kind::sealed).error().code, Errc::usage);
}

// A memory file, as a keeper or a program has it.
struct MemoryFile {
  Fd fd{::memfd_create("memory", MFD_CLOEXEC)};
  std::vector<ByteSpan> mappings = {};

  MemoryFile() { EXPECT_EQ(::ftruncate(fd.get(), kMiB), 0); }
  ~MemoryFile() {
    for (const ByteSpan one : mappings) ::munmap(one.data(), one.size());
  }
  std::shared_ptr<const SharedRegion> adopt(SharedRegionSet& regions) {
    void* const at = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    mappings.emplace_back(static_cast<std::byte*>(at), kMiB);
    return regions.adopt(mappings.back(), Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)));
  }
};

// What a peer has mapped of a process that is dead then, which had `first` and `other`.
void* map_as_peer_of_the_dead(MemoryFile& first, MemoryFile& other) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Fd in(pipe[0]), out(pipe[1]);
  const pid_t dead = ::fork();
  if (dead == 0) {
    SharedRegionSet regions;
    (void)first.adopt(regions);
    const int number = other.adopt(regions)->fd();
    (void)!::write(out.get(), &number, sizeof number);
    for (;;) ::pause();
  }
  int number = -1;
  EXPECT_EQ(::read(in.get(), &number, sizeof number), ssize_t{sizeof number});
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, dead, 0)));
  const Fd file(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), number, 0)));
  EXPECT_GE(file.get(), 0);
  void* const at = ::mmap(nullptr, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  EXPECT_NE(at, MAP_FAILED);
  ::kill(dead, SIGKILL);
  ::waitpid(dead, nullptr, 0);
  return at;
}

TEST(Regions, ASuccessorSeesWhetherAPeerOfItsPredecessorStillMapsOne) {
  MemoryFile first, other;
  void* const mapped = map_as_peer_of_the_dead(first, other);
  SharedRegionSet successor, stranger;
  EXPECT_FALSE(first.adopt(successor)->used_before());
  const auto region = other.adopt(successor);
  const auto again = other.adopt(successor);
  EXPECT_TRUE(region->used_before());
  EXPECT_TRUE(again->used_before());
  EXPECT_FALSE(other.adopt(stranger)->used_before());
  ASSERT_EQ(::munmap(mapped, kMiB), 0);
  EXPECT_FALSE(region->used_before());
  EXPECT_FALSE(again->used_before());
}

TEST(Regions, AnAnnouncedOneOutlivesItsRemoval) {
  SystemClock clock;
  SystemLoop loop(clock);
  SharedRegionSet regions;
  auto made = regions.make(kMiB, Kind::sealed);
  ASSERT_TRUE(made.ok());
  const std::weak_ptr<const SharedRegion> watched = *made;
  {
    ShmBulk bulk(loop, regions);
    RemoteBuffer buffer;
    ASSERT_TRUE(bulk.register_memory((*made)->memory(), true, buffer).ok());
    regions.remove(**made);
    made->reset();
    ASSERT_FALSE(watched.expired());
    EXPECT_GE(::fcntl(bulk.next_region_update()->fd, F_GETFD), 0);
  }
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace ff::net

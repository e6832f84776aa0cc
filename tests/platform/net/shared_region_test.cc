// Shared regions of both kinds: creation, lookup, removal, and that nothing is left behind.
#include "platform/net/shared_region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

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

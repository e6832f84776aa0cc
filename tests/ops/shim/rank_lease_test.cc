// Leases: the file format, and that ranks end at expiry, with or without an agent.
#include "ops/shim/rank_lease.h"

#include "ops/shim/shims.h"

namespace ff::shim {
namespace {

TEST(RankLease, AnyChangedByteIsSeen) {
  const RankLease lease{.boot = "b-1", .renewed_ns = 12'345, .lease_ns = 600 * kSecond};
  const std::string text = lease_text(lease);
  EXPECT_EQ(parse_lease(text, "b-1"), lease);
  EXPECT_FALSE(parse_lease(text, "b-2"));
  EXPECT_FALSE(parse_lease("", "b-1"));
  for (size_t i = 0; i < text.size(); i++) {
    std::string other = text;
    other[i] = other[i] == '7' ? '3' : '7';
    EXPECT_FALSE(parse_lease(other, "b-1")) << i;
    EXPECT_FALSE(parse_lease(text.substr(0, i), "b-1")) << i;
  }
  // A torn write: half of one and half of another.
  const std::string later = lease_text({.boot = "b-1", .renewed_ns = 99'999, .lease_ns = kSecond});
  ASSERT_EQ(later.size(), text.size());
  for (size_t i = 5; i + 1 < text.size(); i++) {
    const std::string torn = later.substr(0, i) + text.substr(i);
    const auto read = parse_lease(torn, "b-1");
    EXPECT_TRUE(!read || torn == text || torn == later) << i;
  }
}

class RankLeaseTest : public ShimTest {
 protected:
  void write(int64_t until_ns) {
    const RankLease lease{
        .boot = boot_id(disk_).value(), .renewed_ns = until_ns - kSecond, .lease_ns = kSecond};
    EXPECT_TRUE(io::ok(io::put(disk_, dir_ / "lease", lease_text(lease))));
  }
  LaunchSpec waits() {
    LaunchSpec launch = script("trap '' TERM; touch $DIR/runs; while :; do sleep 0.05; done");
    launch.lease = dir_ / "lease";
    return launch;
  }
};

TEST_F(RankLeaseTest, ARankEndsWithIt) {
  const int64_t until_ns = clock_.steady_ns() + 2 * kSecond;
  write(until_ns);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exit.abandoned);
  EXPECT_EQ(exit.status, SIGKILL);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(RankLeaseTest, ALongerOneIsFound) {
  write(clock_.steady_ns() + kSecond);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  const int64_t until_ns = clock_.steady_ns() + 4 * kSecond;
  write(until_ns);
  EXPECT_TRUE(end_of(dir).abandoned);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(RankLeaseTest, OneThatIsGoneEndsWhereItWouldHave) {
  const int64_t until_ns = clock_.steady_ns() + 2 * kSecond;
  write(until_ns);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  EXPECT_TRUE(disk_.remove(dir_ / "lease").ok());
  EXPECT_TRUE(end_of(dir).abandoned);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(RankLeaseTest, WhatEndsWellBeforeWasDone) {
  write(clock_.steady_ns() + 3600 * kSecond);
  LaunchSpec launch = script("until [ -e $DIR/stop ]; do sleep 0.05; done");
  launch.lease = dir_ / "lease";
  const std::string dir = begin(launch);
  EXPECT_TRUE(send_order(disk_, dir, ShimOrder::abandon).ok());
  touch("stop");
  const ExitRecord exit = end_of(dir);
  EXPECT_FALSE(exit.abandoned);
  EXPECT_EQ(exit.status, 0);
}

TEST_F(RankLeaseTest, WhatIsGivenUpSaysSo) {
  const std::string dir = begin(script("touch $DIR/runs; while :; do sleep 0.05; done"));
  until([&] { return there("runs"); });
  EXPECT_TRUE(send_order(disk_, dir, ShimOrder::abandon).ok());
  EXPECT_TRUE(send_order(disk_, dir, ShimOrder::terminate).ok());
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exit.abandoned);
  EXPECT_EQ(exit.status, SIGTERM);
}

}  // namespace
}  // namespace ff::shim

// Leases: their text, and that ranks end with them whoever else is there.
#include "ops/shim/lease.h"

#include "ops/shim/shims.h"

namespace ff::shim {
namespace {

TEST(Lease, AnyChangedByteIsSeen) {
  const Lease lease{.boot = "b-1", .success_ns = 12'345, .lease_ns = 600 * kSecond};
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
  // Half of one and half of another.
  const std::string later = lease_text({.boot = "b-1", .success_ns = 99'999, .lease_ns = kSecond});
  ASSERT_EQ(later.size(), text.size());
  for (size_t i = 5; i + 1 < text.size(); i++) {
    const std::string torn = later.substr(0, i) + text.substr(i);
    const auto read = parse_lease(torn, "b-1");
    EXPECT_TRUE(!read || torn == text || torn == later) << i;
  }
}

class LeaseTest : public ShimTest {
 protected:
  void write(int64_t until_ns) {
    const Lease lease{
        .boot = boot_id(disk_).value(), .success_ns = until_ns - kSecond, .lease_ns = kSecond};
    EXPECT_TRUE(io::ok(io::put(disk_, dir_ / "lease", lease_text(lease))));
  }
  Launch waits() {
    Launch launch = script("trap '' TERM; touch $DIR/runs; while :; do sleep 0.05; done");
    launch.lease = dir_ / "lease";
    return launch;
  }
};

TEST_F(LeaseTest, ARankEndsWithIt) {
  const int64_t until_ns = clock_.steady_ns() + 2 * kSecond;
  write(until_ns);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  const Exit exit = end_of(dir);
  EXPECT_TRUE(exit.given_up);
  EXPECT_EQ(exit.status, SIGKILL);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(LeaseTest, ALongerOneIsFound) {
  write(clock_.steady_ns() + kSecond);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  const int64_t until_ns = clock_.steady_ns() + 4 * kSecond;
  write(until_ns);
  EXPECT_TRUE(end_of(dir).given_up);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(LeaseTest, OneThatIsGoneEndsWhereItWouldHave) {
  const int64_t until_ns = clock_.steady_ns() + 2 * kSecond;
  write(until_ns);
  const std::string dir = begin(waits());
  until([&] { return there("runs"); });
  EXPECT_TRUE(disk_.remove(dir_ / "lease").ok());
  EXPECT_TRUE(end_of(dir).given_up);
  EXPECT_GE(clock_.steady_ns(), until_ns);
}

TEST_F(LeaseTest, WhatEndsWellBeforeWasDone) {
  write(clock_.steady_ns() + 3600 * kSecond);
  Launch launch = script("until [ -e $DIR/stop ]; do sleep 0.05; done");
  launch.lease = dir_ / "lease";
  const std::string dir = begin(launch);
  EXPECT_TRUE(give_order(disk_, dir, Order::give_up).ok());
  touch("stop");
  const Exit exit = end_of(dir);
  EXPECT_FALSE(exit.given_up);
  EXPECT_EQ(exit.status, 0);
}

TEST_F(LeaseTest, WhatIsGivenUpSaysSo) {
  const std::string dir = begin(script("touch $DIR/runs; while :; do sleep 0.05; done"));
  until([&] { return there("runs"); });
  EXPECT_TRUE(give_order(disk_, dir, Order::give_up).ok());
  EXPECT_TRUE(give_order(disk_, dir, Order::terminate).ok());
  const Exit exit = end_of(dir);
  EXPECT_TRUE(exit.given_up);
  EXPECT_EQ(exit.status, SIGTERM);
}

}  // namespace
}  // namespace ff::shim

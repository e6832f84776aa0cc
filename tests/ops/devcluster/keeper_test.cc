// Keeping programs running, with shells as the programs: one that ends is started again, what it
// says is logged and looked through, and all stop in their order.
#include "ops/devcluster/keeper.h"

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <string>

#include "platform/base/clock.h"
#include "platform/base/log.h"
#include "platform/base/system_loop.h"
#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"
#include "platform/io/test_bytes.h"

namespace ff::devcluster {
namespace {

class KeeperTest : public testing::Test {
 protected:
  KeeperTest() { log_setup({.level = LogLevel::none}); }

  Keeper::Options options() const {
    return {.program = "/bin/sh",
            .env = {"PATH=/usr/bin:/bin", "DIR=" + dir_.path()},
            .logs = dir_.path(),
            .first_pause_ns = kMillisecond,
            .last_pause_ns = 10 * kMillisecond,
            .patience_ns = 60 * kSecond};
  }
  static Service shell(const std::string& name, const std::string& script, unsigned rank = 0) {
    return {.name = name, .argv = {"-c", script}, .serves = "listening", .rank = rank};
  }
  void until(const std::function<bool()>& condition) {
    const int64_t end_ns = loop_.now_ns() + 60 * kSecond;
    run_task(loop_, poll_until(loop_, [&] { return condition() || loop_.now_ns() > end_ns; }));
    ASSERT_TRUE(condition());
  }

  io::TempDir dir_;
  SystemClock clock_;
  SystemLoop loop_{clock_};
  io::SystemDisk disk_;
  SeededRng rng_{1};
  size_t changes_ = 0;
};

TEST_F(KeeperTest, WhatEndsIsStartedAgain) {
  Keeper keeper(loop_, disk_, rng_, options(), [this] { changes_++; });
  keeper.start(shell("one", "echo begins; echo 'listening on 1'; echo dies >&2; exit 7"));
  until([&] { return keeper.standings()[0].restarts >= 3; });
  const Standing one = keeper.standings()[0];
  run_task(loop_, keeper.stop());
  EXPECT_FALSE(keeper.standings()[0].serves);
  EXPECT_EQ(keeper.standings()[0].pid, 0);
  EXPECT_EQ(one.name, "one");
  EXPECT_TRUE(one.served);
  EXPECT_EQ(one.end, "exit 7");
  EXPECT_GT(one.ended_ns, 0);
  EXPECT_EQ(one.last_words, (std::vector<std::string>{"begins", "listening on 1", "dies"}));
  EXPECT_TRUE(
      io::get(disk_, dir_ / "one.log").starts_with("begins\nlistening on 1\ndies\nbegins\n"));
  EXPECT_GT(changes_, 6u);
}

TEST_F(KeeperTest, ThePauseGrowsUntilItHasRunWell) {
  Keeper::Options slow = options();
  slow.first_pause_ns = 40 * kMillisecond;
  slow.last_pause_ns = kSecond;
  Keeper keeper(loop_, disk_, rng_, slow, [] {});
  const int64_t begin_ns = loop_.now_ns();
  keeper.start(shell("one", "exit 1"));
  until([&] { return keeper.standings()[0].restarts >= 4; });
  // Half of each at least: of 40, 80 and 160 ms, before the fourth end.
  EXPECT_GE(loop_.now_ns() - begin_ns, 140 * kMillisecond);
  run_task(loop_, keeper.stop());
}

// Growing, twenty pauses would take a quarter of an hour.
TEST_F(KeeperTest, ThePauseIsShortAgainAfterItHasRunWell) {
  Keeper::Options quick = options();
  quick.last_pause_ns = 1000 * kSecond;
  quick.healthy_ns = 1;
  Keeper keeper(loop_, disk_, rng_, quick, [] {});
  keeper.start(shell("one", "exit 1"));
  until([&] { return keeper.standings()[0].restarts >= 20; });
  run_task(loop_, keeper.stop());
}

TEST_F(KeeperTest, OneThatWasKilledComesBack) {
  Keeper keeper(loop_, disk_, rng_, options(), [] {});
  keeper.start(shell("one", "echo listening; exec sleep 1000"));
  until([&] { return keeper.standings()[0].serves; });
  const pid_t before = keeper.standings()[0].pid;
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  until([&] { return keeper.standings()[0].serves && keeper.standings()[0].pid != before; });
  EXPECT_EQ(keeper.standings()[0].end, "killed by signal 9 (Killed)");
  EXPECT_EQ(keeper.standings()[0].restarts, 1u);
  run_task(loop_, keeper.stop());
  EXPECT_EQ(keeper.standings()[0].restarts, 1u);
}

TEST_F(KeeperTest, HigherRanksHaveEndedBeforeLowerOnesAreTold) {
  Keeper keeper(loop_, disk_, rng_, options(), [] {});
  // The one of the highest rank takes longest.
  const auto script = [](const std::string& name, const std::string& work) {
    return "trap '" + work + "echo " + name + " >> $DIR/order; exit 0' TERM; echo listening; " +
           "while :; do sleep 0.01; done";
  };
  keeper.start(shell("low", script("low", ""), 0));
  keeper.start(shell("high", script("high", "sleep 0.3; "), 2));
  keeper.start(shell("middle", script("middle", "sleep 0.1; "), 1));
  until([&] {
    const auto all = keeper.standings();
    return all[0].serves && all[1].serves && all[2].serves;
  });
  run_task(loop_, keeper.stop());
  EXPECT_EQ(io::get(disk_, dir_ / "order"), "high\nmiddle\nlow\n");
}

TEST_F(KeeperTest, OneThatDoesNotEndIsKilled) {
  Keeper::Options short_of_time = options();
  short_of_time.patience_ns = 10 * kMillisecond;
  Keeper keeper(loop_, disk_, rng_, short_of_time, [] {});
  keeper.start(shell("deaf", "trap '' TERM; echo listening; while :; do sleep 0.01; done"));
  until([&] { return keeper.standings()[0].serves; });
  run_task(loop_, keeper.stop());
  EXPECT_EQ(keeper.standings()[0].end, "killed by signal 9 (Killed)");
}

TEST_F(KeeperTest, OneThatPausesStopsAtOnce) {
  Keeper::Options long_pause = options();
  long_pause.first_pause_ns = 1000 * kSecond;
  Keeper keeper(loop_, disk_, rng_, long_pause, [] {});
  keeper.start(shell("one", "exit 1"));
  until([&] { return keeper.standings()[0].restarts == 1; });
  run_task(loop_, keeper.stop());
  EXPECT_EQ(keeper.standings()[0].restarts, 1u);
}

TEST_F(KeeperTest, AProgramThatIsNoneSaysSo) {
  Keeper::Options none = options();
  none.program = "/nowhere/ff";
  Keeper keeper(loop_, disk_, rng_, none, [] {});
  keeper.start(shell("one", ""));
  until([&] { return keeper.standings()[0].restarts >= 1; });
  const Standing one = keeper.standings()[0];
  run_task(loop_, keeper.stop());
  EXPECT_EQ(one.end, "exit 127");
  EXPECT_EQ(one.last_words, std::vector<std::string>{"/nowhere/ff: No such file or directory"});
}

TEST(LogFile, IsBoundedAndGoesOn) {
  io::TempDir dir;
  io::SystemDisk disk;
  const std::string path = dir / "a.log";
  {
    LogFile log(disk, path, 10);
    log.write("1234");
    log.write("5678");
  }
  LogFile log(disk, path, 10);
  log.write("90");
  EXPECT_EQ(io::get(disk, path), "1234567890");
  log.write("abc");
  EXPECT_EQ(io::get(disk, path), "abc");
  EXPECT_EQ(io::get(disk, path + ".1"), "1234567890");
  log.write("longer than the limit");
  EXPECT_EQ(io::get(disk, path), "longer than the limit");
  EXPECT_EQ(io::get(disk, path + ".1"), "abc");
}

}  // namespace
}  // namespace ff::devcluster

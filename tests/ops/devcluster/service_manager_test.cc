// Service manager, with shell scripts as services: restarts, logs, readiness, and the order of
// stopping.
#include "ops/devcluster/service_manager.h"

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

class ServiceManagerTest : public testing::Test {
 protected:
  ServiceManagerTest() { log_setup({.level = LogLevel::none}); }

  ServiceManager::Options options() const {
    return {.program = "/bin/sh",
            .env = {"PATH=/usr/bin:/bin", "DIR=" + dir_.path()},
            .logs = dir_.path(),
            .first_pause_ns = kMillisecond,
            .last_pause_ns = 10 * kMillisecond,
            .patience_ns = 60 * kSecond};
  }
  static ServiceSpec shell(const std::string& name, const std::string& script, unsigned rank = 0) {
    return {.name = name, .argv = {"-c", script}, .ready_text = "listening", .stop_priority = rank};
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

TEST_F(ServiceManagerTest, WhatEndsIsStartedAgain) {
  ServiceManager manager(loop_, disk_, rng_, options(), [this] { changes_++; });
  manager.start(shell("one", "echo begins; echo 'listening on 1'; echo dies >&2; exit 7"));
  until([&] { return manager.statuses()[0].restarts >= 3; });
  const ServiceStatus one = manager.statuses()[0];
  run_task(loop_, manager.stop());
  EXPECT_FALSE(manager.statuses()[0].ready);
  EXPECT_EQ(manager.statuses()[0].pid, 0);
  EXPECT_EQ(one.name, "one");
  EXPECT_TRUE(one.was_ready);
  EXPECT_EQ(one.exit_text, "exit 7");
  EXPECT_GT(one.exited_ns, 0);
  EXPECT_EQ(one.last_output, (std::vector<std::string>{"begins", "listening on 1", "dies"}));
  EXPECT_TRUE(
      io::get(disk_, dir_ / "one.log").starts_with("begins\nlistening on 1\ndies\nbegins\n"));
  EXPECT_GT(changes_, 6u);
}

TEST_F(ServiceManagerTest, ThePauseGrowsUntilItHasRunWell) {
  ServiceManager::Options slow = options();
  slow.first_pause_ns = 40 * kMillisecond;
  slow.last_pause_ns = kSecond;
  ServiceManager manager(loop_, disk_, rng_, slow, [] {});
  const int64_t begin_ns = loop_.now_ns();
  manager.start(shell("one", "exit 1"));
  until([&] { return manager.statuses()[0].restarts >= 4; });
  // At least half of 40, 80 and 160 ms, before the fourth exit.
  EXPECT_GE(loop_.now_ns() - begin_ns, 140 * kMillisecond);
  run_task(loop_, manager.stop());
}

// With growing delays, twenty restarts would take a quarter of an hour.
TEST_F(ServiceManagerTest, ThePauseIsShortAgainAfterItHasRunWell) {
  ServiceManager::Options quick = options();
  quick.last_pause_ns = 1000 * kSecond;
  quick.healthy_ns = 1;
  ServiceManager manager(loop_, disk_, rng_, quick, [] {});
  manager.start(shell("one", "exit 1"));
  until([&] { return manager.statuses()[0].restarts >= 20; });
  run_task(loop_, manager.stop());
}

TEST_F(ServiceManagerTest, OneThatWasKilledComesBack) {
  ServiceManager manager(loop_, disk_, rng_, options(), [] {});
  manager.start(shell("one", "echo listening; exec sleep 1000"));
  until([&] { return manager.statuses()[0].ready; });
  const pid_t before = manager.statuses()[0].pid;
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  until([&] { return manager.statuses()[0].ready && manager.statuses()[0].pid != before; });
  EXPECT_EQ(manager.statuses()[0].exit_text, "killed by signal 9 (Killed)");
  EXPECT_EQ(manager.statuses()[0].restarts, 1u);
  run_task(loop_, manager.stop());
  EXPECT_EQ(manager.statuses()[0].restarts, 1u);
}

TEST_F(ServiceManagerTest, HigherRanksHaveEndedBeforeLowerOnesAreTold) {
  ServiceManager manager(loop_, disk_, rng_, options(), [] {});
  // The service of the highest priority takes longest.
  const auto script = [](const std::string& name, const std::string& work) {
    return "trap '" + work + "echo " + name + " >> $DIR/order; exit 0' TERM; echo listening; " +
           "while :; do sleep 0.01; done";
  };
  manager.start(shell("low", script("low", ""), 0));
  manager.start(shell("high", script("high", "sleep 0.3; "), 2));
  manager.start(shell("middle", script("middle", "sleep 0.1; "), 1));
  until([&] {
    const auto all = manager.statuses();
    return all[0].ready && all[1].ready && all[2].ready;
  });
  run_task(loop_, manager.stop());
  EXPECT_EQ(io::get(disk_, dir_ / "order"), "high\nmiddle\nlow\n");
}

TEST_F(ServiceManagerTest, OneThatDoesNotEndIsKilled) {
  ServiceManager::Options short_of_time = options();
  short_of_time.patience_ns = 10 * kMillisecond;
  ServiceManager manager(loop_, disk_, rng_, short_of_time, [] {});
  manager.start(shell("deaf", "trap '' TERM; echo listening; while :; do sleep 0.01; done"));
  until([&] { return manager.statuses()[0].ready; });
  run_task(loop_, manager.stop());
  EXPECT_EQ(manager.statuses()[0].exit_text, "killed by signal 9 (Killed)");
}

TEST_F(ServiceManagerTest, OneThatPausesStopsAtOnce) {
  ServiceManager::Options long_pause = options();
  long_pause.first_pause_ns = 1000 * kSecond;
  ServiceManager manager(loop_, disk_, rng_, long_pause, [] {});
  manager.start(shell("one", "exit 1"));
  until([&] { return manager.statuses()[0].restarts == 1; });
  run_task(loop_, manager.stop());
  EXPECT_EQ(manager.statuses()[0].restarts, 1u);
}

TEST_F(ServiceManagerTest, AProgramThatIsNoneSaysSo) {
  ServiceManager::Options none = options();
  none.program = "/nowhere/ff";
  ServiceManager manager(loop_, disk_, rng_, none, [] {});
  manager.start(shell("one", ""));
  until([&] { return manager.statuses()[0].restarts >= 1; });
  const ServiceStatus one = manager.statuses()[0];
  run_task(loop_, manager.stop());
  EXPECT_EQ(one.exit_text, "exit 127");
  EXPECT_EQ(one.last_output, std::vector<std::string>{"/nowhere/ff: No such file or directory"});
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

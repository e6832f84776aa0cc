// Killed agents and shims: a rank outlives its agent, and processes that outlive their shim are
// found.
#include <gtest/gtest.h>

#include <string>

#include "ops/shim/shims.h"

namespace ff::shim {
namespace {

class LostTest : public ShimTest {
 protected:
  // A rank that ends only on SIGKILL, with a daemon that has left its session.
  std::string begin_deaf() {
    launch_ = script(
        "trap '' TERM HUP PIPE\n"
        "setsid sh -c 'setsid sh -c \"echo \\$\\$ > $DIR/daemon; exec sleep 1000\" & exit' &\n"
        "env -i sh -c 'echo $$ > \"$1\"; exec sleep 1000' sh $DIR/child &\n"
        "while :; do sleep 0.01; done");
    const std::string dir = begin(launch_);
    daemon_ = process_in("daemon");
    child_ = process_in("child");
    return dir;
  }
  void kill_shim(const std::string& dir) {
    ASSERT_TRUE(send_signal(disk_, running(dir).shim, SIGKILL));
    until_phase(dir, ShimPhase::lost);
  }

  LaunchSpec launch_;
  ProcessId daemon_, child_;
};

TEST_F(LostTest, ARankOutlivesItsAgent) {
  const std::string dir = prepare(script("until [ -e $DIR/go ]; do sleep 0.01; done; exit 9"));
  dirs_.push_back(dir);
  const int status = run_program({FF_SHIM_PROGRAM, "agent", dir});
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  until_phase(dir, ShimPhase::running);
  const RunningRecord running = *state(dir).running;
  EXPECT_TRUE(is_alive(disk_, running.rank));
  touch("go");
  EXPECT_TRUE(exited_with(end_of(dir), 9));
}

TEST_F(LostTest, SurvivorsAreFoundAndKilled) {
  const std::string dir = begin_deaf();
  const RunningRecord running = this->running(dir);
  EXPECT_EQ(io::code_of(kill_lost_rank(disk_, clock_, dir)), Errc::refused);  // it is alive
  kill_shim(dir);
  EXPECT_TRUE(is_alive(disk_, running.rank));
  EXPECT_TRUE(is_alive(disk_, daemon_));
  const auto exit = kill_lost_rank(disk_, clock_, dir);
  ASSERT_TRUE(io::ok(exit));
  EXPECT_EQ(exit->kind, ExitKind::lost);
  EXPECT_GE(exit->killed, 3u);
  for (const ProcessId& one : {running.rank, daemon_, child_}) EXPECT_FALSE(is_alive(disk_, one));
  EXPECT_EQ(marked(launch_), 0u);
  EXPECT_EQ(state(dir).phase, ShimPhase::exited);
  EXPECT_EQ(*state(dir).exit, *exit);
  const auto again = kill_lost_rank(disk_, clock_, dir);
  ASSERT_TRUE(io::ok(again));
  EXPECT_EQ(*again, *exit);
  // Nothing starts in this folder again.
  std::string said;
  EXPECT_NE(run_program({FF_SHIM_PROGRAM, dir}, &said), 0);
}

TEST_F(LostTest, AnotherRankOfTheSameTaskIsNotTouched) {
  const LaunchSpec other = script("echo run; sleep 1000");
  const std::string other_dir = begin(other, "other");
  const std::string dir = begin_deaf();
  const RunningRecord running = this->running(other_dir);
  kill_shim(dir);
  ASSERT_TRUE(io::ok(kill_lost_rank(disk_, clock_, dir)));
  EXPECT_EQ(state(other_dir).phase, ShimPhase::running);
  EXPECT_TRUE(is_alive(disk_, running.rank));
}

TEST_F(LostTest, AfterAnotherBootNothingIsKilled) {
  const std::string dir = dir_ / "shim";
  ASSERT_TRUE(disk_.make_dir(dir, 0700).ok());
  // Reused pids: this process has the pid of the rank.
  const ProcessId self = find_process(disk_, ::getpid())->id;
  const RunningRecord running{.shim = self, .rank = self, .boot = "another"};
  ASSERT_TRUE(io::put(disk_, dir + "/" + kRunningFile, to_json(running)).ok());
  EXPECT_EQ(state(dir).phase, ShimPhase::lost);
  const auto exit = kill_lost_rank(disk_, clock_, dir);
  ASSERT_TRUE(io::ok(exit));
  EXPECT_EQ(exit->kind, ExitKind::lost);
  EXPECT_EQ(exit->killed, 0u);
}

TEST_F(LostTest, ANumberThatWasGivenAgainIsNoShim) {
  const std::string dir = dir_ / "shim";
  ASSERT_TRUE(disk_.make_dir(dir, 0700).ok());
  ProcessId self = find_process(disk_, ::getpid())->id;
  self.start++;
  const RunningRecord running{.shim = self, .rank = self, .boot = boot_id(disk_).value()};
  ASSERT_TRUE(io::put(disk_, dir + "/" + kRunningFile, to_json(running)).ok());
  EXPECT_EQ(state(dir).phase, ShimPhase::lost);
  const auto exit = kill_lost_rank(disk_, clock_, dir);
  ASSERT_TRUE(io::ok(exit));
  EXPECT_EQ(exit->killed, 0u);
}

TEST_F(LostTest, FilesThatNobodyWritesAreErrors) {
  const std::string dir = dir_ / "shim";
  EXPECT_EQ(state(dir).phase, ShimPhase::not_started);  // not even the folder
  EXPECT_EQ(io::code_of(kill_lost_rank(disk_, clock_, dir)), Errc::refused);
  ASSERT_TRUE(disk_.make_dir(dir, 0700).ok());
  ASSERT_TRUE(io::put(disk_, dir + "/" + kRunningFile, "").ok());
  EXPECT_EQ(io::code_of(read_state(disk_, dir)), Errc::corrupt);
  ASSERT_TRUE(io::put(disk_, dir + "/" + kExitFile, "{").ok());
  EXPECT_EQ(io::code_of(read_state(disk_, dir)), Errc::corrupt);
}

}  // namespace
}  // namespace ff::shim

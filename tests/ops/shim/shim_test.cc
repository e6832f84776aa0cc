// Shims and ranks as real processes: start, environment, exit, and that no process is left.
#include "ops/shim/shim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ops/shim/shims.h"

namespace ff::shim {
namespace {

constexpr uint32_t kNobody = 65534;

TEST_F(ShimTest, ARankThatEndsWell) {
  const std::string dir = begin(script("echo out; echo err >&2; printf 'no newline'"));
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exited_with(exit, 0));
  EXPECT_EQ(printed(), "out\nerr\nno newline\n");
  EXPECT_EQ(exit.killed, 0u);
  EXPECT_EQ(exit.log_dropped, 0u);
  EXPECT_GT(exit.peak_memory.value_or(0), 0u);
  EXPECT_FALSE(exit.oom_killed.value_or(false));
  const RunningRecord running = *state(dir).running;
  EXPECT_LE(running.began_ns, exit.ended_ns);
  EXPECT_LE(exit.ended_ns, exit.gone_ns);
  EXPECT_FALSE(running.no_cgroup.empty());
  until([&] { return !is_alive(disk_, running.shim); });
  EXPECT_FALSE(is_alive(disk_, running.rank));
}

TEST_F(ShimTest, CodesAndSignalsAreTold) {
  EXPECT_TRUE(exited_with(run(script("exit 77")), 77));
  const std::string dir = begin(script("kill -SEGV $$"), "second");
  EXPECT_TRUE(killed_by(end_of(dir), SIGSEGV));
}

TEST_F(ShimTest, AProgramThatIsNotThere) {
  EXPECT_TRUE(exited_with(run(launch({"no-such-program"})), 127));
  EXPECT_EQ(printed(), "ff: no-such-program: No such file or directory\n");
}

TEST_F(ShimTest, AProgramThatMayNotBeRun) {
  touch("file");
  EXPECT_TRUE(exited_with(run(launch({dir_ / "file"})), 126));
  EXPECT_EQ(printed(), "ff: " + dir_ / "file" + ": Permission denied\n");
}

TEST_F(ShimTest, AFileThatIsNoProgram) {
  ASSERT_TRUE(io::put(disk_, dir_ / "file", "no program").ok());
  ASSERT_TRUE(disk_.set_mode(dir_ / "file", 0755).ok());
  EXPECT_TRUE(exited_with(run(launch({dir_ / "file"})), 126));
  EXPECT_EQ(printed(), "ff: " + dir_ / "file" + ": Exec format error\n");
}

TEST_F(ShimTest, AFolderThatIsNotThere) {
  LaunchSpec launch = script("true");
  launch.cwd = "/no/such/folder";
  EXPECT_TRUE(exited_with(run(launch), 127));
  EXPECT_EQ(printed(), "ff: /no/such/folder: No such file or directory\n");
}

TEST_F(ShimTest, ArgumentsAreKeptByteForByte) {
  const Words words = {"a b", "\"", "'", "\\n", "two\nlines", "$HOME", "", "*", "\xff\xfe"};
  Words argv = {"/bin/sh", "-c", R"(for word; do printf '[%s]' "$word"; done)", "sh"};
  std::string expected;
  for (const std::string& word : words) {
    argv.push_back(word);
    expected += "[" + word + "]";
  }
  EXPECT_TRUE(exited_with(run(launch(argv)), 0));
  EXPECT_EQ(printed(), expected + "\n");
}

TEST_F(ShimTest, TheEnvironmentIsWhatWasGivenAndTheMarker) {
  LaunchSpec launch = this->launch({"env"});
  launch.env = {"PATH=/usr/bin:/bin", "FF_ATTEMPT=old", "BYTES=\xff=\"'"};
  launch.marker = "FF_ATTEMPT=new";
  EXPECT_TRUE(exited_with(run(launch), 0));
  EXPECT_EQ(printed(), "PATH=/usr/bin:/bin\nBYTES=\xff=\"'\nFF_ATTEMPT=new\n");
}

TEST_F(ShimTest, ARankBeginsClean) {
  LaunchSpec launch = script(
      "umask; pwd; ls /proc/self/fd | tr '\\n' ' '; echo; readlink /proc/self/fd/0;"
      "cat /proc/self/oom_score_adj; grep -E '^Sig(Blk|Ign)' /proc/self/status");
  launch.cwd = "/usr";
  EXPECT_TRUE(exited_with(run(launch), 0));
  // Descriptor 3 is the folder that ls lists.
  EXPECT_EQ(printed(),
            "0022\n/usr\n0 1 2 3 \n/dev/null\n0\nSigBlk:\t0000000000000000\n"
            "SigIgn:\t0000000000000000\n");
}

TEST_F(ShimTest, ItLeadsASessionOfItsOwn) {
  const std::string dir = begin(script("cat /proc/self/stat; sleep 1000"));
  until([&] { return !printed().empty(); });
  const RunningRecord running = *state(dir).running;
  const std::string text = printed();
  const auto fields = split(std::string_view(text).substr(text.rfind(") ") + 2), ' ');
  EXPECT_EQ(fields[3], std::to_string(running.rank.pid));  // of the shell that runs cat
  EXPECT_TRUE(is_alive(disk_, running.rank));
  EXPECT_EQ(find_process(disk_, running.rank.pid)->parent, running.shim.pid);
}

TEST_F(ShimTest, AnotherUserHasItsGroupsAndNoCapabilities) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  LaunchSpec launch = script(
      "grep -E '^(Uid|Gid|Groups|Cap(Inh|Prm|Eff|Amb)|NoNewPrivs)' /proc/self/status;"
      "echo again > /dev/stdout; cat /proc/self/oom_score_adj");
  launch.user = RankUser{kNobody, kNobody, {44, 100}};
  EXPECT_TRUE(exited_with(run(launch), 0));
  EXPECT_EQ(printed(),
            "Uid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\n"
            "Groups:\t44 100 \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
            "CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t0\nagain\n0\n");
}

TEST_F(ShimTest, AFolderThatItsUserMayNotEnter) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may become another user";
  LaunchSpec launch = script("true");
  launch.user = RankUser{kNobody, kNobody};
  launch.cwd = dir_.path();
  EXPECT_TRUE(exited_with(run(launch), 127));
  EXPECT_EQ(printed(), "ff: " + dir_.path() + ": Permission denied\n");
}

// Leftover processes. -----------------------------------------------------------------------------

TEST_F(ShimTest, WhatHasLeftTwiceIsAskedToEnd) {
  const LaunchSpec launch = script(
      "setsid sh -c 'setsid sh -c \"echo \\$\\$ > $DIR/pid; exec sleep 1000\" & exit' &\n"
      "until [ -s $DIR/pid ]; do sleep 0.01; done; exit 3");
  const std::string dir = begin(launch);
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exited_with(exit, 3));
  EXPECT_EQ(exit.killed, 0u);
  EXPECT_EQ(marked(launch), 0u);
}

TEST_F(ShimTest, WhatDoesNotEndWhenAskedIsKilled) {
  const LaunchSpec launch = script(
      "setsid sh -c 'trap \"\" TERM; echo $$ > $DIR/pid; while :; do sleep 1000; done' &\n"
      "until [ -s $DIR/pid ]; do sleep 0.01; done; exit 3");
  const std::string dir = begin(launch);
  const ProcessId daemon = process_in("pid");
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exited_with(exit, 3));
  EXPECT_GE(exit.killed, 1u);
  EXPECT_NE(io::get(disk_, dir_ / "rank.log").find("left behind"), std::string::npos);
  EXPECT_FALSE(is_alive(disk_, daemon));
  EXPECT_EQ(marked(launch), 0u);
}

// Orders. -----------------------------------------------------------------------------------------

TEST_F(ShimTest, NotifyReachesTheFirstProcessOnlyAndOnce) {
  LaunchSpec launch = script(
      "sh -c 'trap \"touch $DIR/child\" USR1; while :; do sleep 0.01; done' &\n"
      "trap 'echo got it' USR1; echo begun; while :; do sleep 0.01; done");
  launch.stop_signal = SIGUSR1;
  const std::string dir = begin(launch);
  until([&] { return printed() == "begun\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::notify)));
  until([&] { return printed() == "begun\ngot it\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::notify)));
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::terminate)));
  EXPECT_TRUE(killed_by(end_of(dir), SIGTERM));
  EXPECT_EQ(printed(), "begun\ngot it\n");
  EXPECT_FALSE(there("child"));
  // No process is left to signal, which is no error.
  EXPECT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::kill)));
}

TEST_F(ShimTest, TerminateReachesAll) {
  const LaunchSpec launch = script(
      "setsid sh -c 'trap \": >$DIR/child; exit\" TERM; touch $DIR/begun;"
      "while :; do sleep 0.01; done' &\n"
      "trap 'exit 5' TERM; until [ -e $DIR/begun ]; do sleep 0.01; done; echo begun;"
      "while :; do sleep 0.01; done");
  const std::string dir = begin(launch);
  until([&] { return printed() == "begun\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::terminate)));
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exited_with(exit, 5));
  EXPECT_TRUE(there("child"));
  EXPECT_EQ(exit.killed, 0u);
}

TEST_F(ShimTest, SigtermToTheShimIsTheSame) {
  const std::string dir = begin(script("trap 'exit 5' TERM; echo a; while :; do sleep 0.01; done"));
  until([&] { return printed() == "a\n"; });
  ASSERT_TRUE(send_signal(disk_, running(dir).shim, SIGTERM));
  EXPECT_TRUE(exited_with(end_of(dir), 5));
}

TEST_F(ShimTest, OneThatIgnoresItIsKilled) {
  const std::string dir = begin(script("trap '' TERM; echo deaf; while :; do sleep 0.01; done"));
  until([&] { return printed() == "deaf\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::terminate)));
  EXPECT_EQ(state(dir).phase, ShimPhase::running);
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::kill)));
  EXPECT_TRUE(killed_by(end_of(dir), SIGKILL));
}

TEST_F(ShimTest, OneThatIsStoppedEndsToo) {
  const std::string dir = begin(script("echo a; kill -STOP $$; sleep 1000"));
  until([&] { return printed() == "a\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::terminate)));
  EXPECT_TRUE(killed_by(end_of(dir), SIGTERM));
}

TEST_F(ShimTest, ManyThatForkAreAllKilled) {
  const LaunchSpec launch = script(
      "i=0; while [ $i -lt 50 ]; do setsid sh -c 'trap \"\" TERM; while :; do (:); done' &\n"
      "i=$((i + 1)); done; echo begun; wait");
  const std::string dir = begin(launch);
  until([&] { return printed() == "begun\n"; });
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::kill)));
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(killed_by(exit, SIGKILL));
  EXPECT_GE(exit.killed, 50u);
  EXPECT_EQ(marked(launch), 0u);
}

TEST_F(ShimTest, KilledBeforeItHasBegun) {
  const std::string dir = prepare(script("touch $DIR/ran"));
  ASSERT_TRUE(io::ok(send_order(disk_, dir, ShimOrder::kill)));
  EXPECT_EQ(state(dir).phase, ShimPhase::not_started);
  start(dir);
  const ExitRecord exit = end_of(dir);
  EXPECT_EQ(exit.kind, ExitKind::not_started);
  EXPECT_FALSE(exit.why.empty());
  EXPECT_FALSE(there("ran"));
}

TEST_F(ShimTest, ALaunchThatCannotBeRead) {
  const std::string dir = prepare(script("true"));
  ASSERT_TRUE(io::put(disk_, dir + "/" + kLaunchFile, "{\"ff_shim\": 1}").ok());
  start(dir);
  const ExitRecord exit = end_of(dir);
  EXPECT_EQ(exit.kind, ExitKind::not_started);
  EXPECT_NE(exit.why.find("argv"), std::string::npos);
}

TEST_F(ShimTest, AProgramForTheShimThatIsNotThere) {
  const std::string dir = prepare(script("true"));
  EXPECT_EQ(io::code_of(start_shim({"/no/such/ff"}, dir)), Errc::not_found);
  EXPECT_EQ(io::code_of(start_shim({FF_SHIM_PROGRAM}, "relative")), Errc::usage);
  EXPECT_EQ(state(dir).phase, ShimPhase::not_started);
}

TEST_F(ShimTest, ASecondShimIsRefused) {
  const std::string dir = begin(script("echo run; until [ -e $DIR/go ]; do sleep 0.01; done"));
  const RunningRecord first = running(dir);
  std::string said;
  EXPECT_NE(run_program({FF_SHIM_PROGRAM, dir}, &said), 0);
  EXPECT_NE(said.find("another shim"), std::string::npos) << said;
  EXPECT_EQ(*state(dir).running, first);
  EXPECT_EQ(state(dir).phase, ShimPhase::running);
  touch("go");
  EXPECT_TRUE(exited_with(end_of(dir), 0));
  until([&] { return !is_alive(disk_, first.shim); });
  EXPECT_NE(run_program({FF_SHIM_PROGRAM, dir}, &said), 0);
  EXPECT_NE(said.find("before"), std::string::npos) << said;
  EXPECT_EQ(printed(), "run\n");
}

// Output. -----------------------------------------------------------------------------------------

TEST_F(ShimTest, AllOutputIsKeptWhereThereIsRoom) {
  LaunchSpec launch = script("seq 300000");
  launch.log.file_bytes = kMiB;
  launch.log.files = 100;
  launch.log.rate = 0;
  EXPECT_TRUE(exited_with(run(launch), 0));
  uint64_t expected = 300000;
  for (int age = 0; expected > 0; age++) {
    const std::string name = dir_ / (age == 0 ? "rank.log" : "rank.log." + std::to_string(age));
    const auto text = io::read_file(disk_, name, kMiB);
    ASSERT_TRUE(io::ok(text));
    auto lines = lines_of(*text);
    std::ranges::reverse(lines);
    for (const RankLogLine& line : lines) {
      if (line.own) continue;  // where the file begins
      ASSERT_EQ(line.text, std::to_string(expected--)) << name;
    }
  }
}

TEST_F(ShimTest, FloodsAreBoundedOnDisk) {
  LaunchSpec launch = script("yes 'a line that says very little' | head -c 100000000; exit 4");
  launch.log.file_bytes = 256 * kKiB;
  launch.log.files = 3;
  launch.log.burst = kMiB;
  const ExitRecord exit = run(launch);
  EXPECT_TRUE(exited_with(exit, 4));
  EXPECT_GT(exit.log_dropped, 0u);
  uint64_t bytes = 0;
  const auto entries = disk_.list(dir_.path());
  for (const io::DirEntry& entry : *entries) {
    if (!entry.name.starts_with("rank.log")) continue;
    const uint64_t size = disk_.info(dir_ / entry.name)->size;
    EXPECT_LE(size, 256 * kKiB) << entry.name;
    bytes += size;
    lines_of(io::get(disk_, dir_ / entry.name));
  }
  EXPECT_LE(bytes, 3 * 256 * kKiB);
}

TEST_F(ShimTest, AFullDiskDoesNotHoldARankUp) {
  const std::string full = mount_small();
  if (full.empty()) GTEST_SKIP() << "no file system can be mounted here";
  ASSERT_TRUE(io::put(disk_, full + "/ballast", std::string(512 * kKiB, 'x')).ok());
  LaunchSpec launch = script(
      "yes 'a line that says very little' | head -c 4000000; touch $DIR/flooded;"
      "until [ -e $DIR/stop ]; do echo after; sleep 0.05; done");
  launch.log = {.path = full + "/rank.log", .file_bytes = 64 * kMiB, .rate = 0};
  const std::string dir = begin(launch);
  until([&] { return there("flooded"); });
  EXPECT_TRUE(disk_.remove(full + "/ballast").ok());
  const auto log = [&] { return io::read_file(disk_, full + "/rank.log", kMiB).value(); };
  until([&] { return log().ends_with("Z after\n"); });
  touch("stop");
  const ExitRecord exit = end_of(dir);
  EXPECT_TRUE(exited_with(exit, 0));
  EXPECT_GT(exit.log_dropped, 0u);
  EXPECT_NE(log().find("No space left on device"), std::string::npos);
  lines_of(log());
}

TEST_F(ShimTest, AnExitWaitsForSpace) {
  const std::string full = mount_small();
  if (full.empty()) GTEST_SKIP() << "no file system can be mounted here";
  const std::string dir =
      prepare(script("head -c 2000000 /dev/zero > $DIR/small/fill; exit 6"), "small/shim");
  start(dir);
  const ProcessId rank = running(dir).rank;
  until([&] { return !is_alive(disk_, rank); });
  EXPECT_EQ(state(dir).phase, ShimPhase::running);
  EXPECT_TRUE(disk_.remove(full + "/fill").ok());
  EXPECT_TRUE(exited_with(end_of(dir), 6));
}

// Memory. -----------------------------------------------------------------------------------------

class CgroupTest : public ShimTest {
 protected:
  void TearDown() override {
    ShimTest::TearDown();
    if (path_.empty()) return;
    EXPECT_TRUE(io::ok(disk_.remove_dir(io::parent(path_))));
  }
  // A rank in its own cgroup; the parent is removed at the end.
  std::string begin_in_group(LaunchSpec launch) {
    launch.cgroup = "ff_test_" + std::to_string(::getpid());
    const std::string dir = begin(launch);
    path_ = running(dir).cgroup;
    return dir;
  }
  std::string path_;
};

TEST_F(CgroupTest, WhoTakesTooMuchMemoryIsKilled) {
  LaunchSpec launch = this->launch({FF_SHIM_PROGRAM, "eat", "256"});
  launch.memory_limit = 64 * kMiB;
  const std::string dir = begin_in_group(launch);
  const RunningRecord running = *state(dir).running;
  const ExitRecord exit = end_of(dir);
  if (running.cgroup.empty()) GTEST_SKIP() << "no cgroup: " << running.no_cgroup;
  EXPECT_TRUE(killed_by(exit, SIGKILL));
  EXPECT_EQ(exit.oom_killed, true);
  EXPECT_TRUE(exit.peak_of_cgroup);
  EXPECT_GT(exit.peak_memory.value_or(0), 32 * kMiB);
  EXPECT_LE(exit.peak_memory.value_or(0), 64 * kMiB);
  EXPECT_EQ(io::code_of(disk_.info(running.cgroup)), Errc::not_found);
}

TEST_F(CgroupTest, WhoDoesNotIsLeftAlone) {
  LaunchSpec launch = this->launch({FF_SHIM_PROGRAM, "eat", "16"});
  launch.memory_limit = 64 * kMiB;
  const std::string dir = begin_in_group(launch);
  const ExitRecord exit = end_of(dir);
  if (path_.empty()) GTEST_SKIP() << "no cgroup: " << state(dir).running->no_cgroup;
  EXPECT_TRUE(exited_with(exit, 0));
  EXPECT_EQ(exit.oom_killed, false);
  EXPECT_GT(exit.peak_memory.value_or(0), 16 * kMiB);
}

TEST_F(CgroupTest, SurvivorsWithoutTheMarkerAreFoundThere) {
  const std::string dir = begin_in_group(
      script("setsid env -i setsid sh -c 'echo $$ > \"$1\"; exec sleep 1000' sh $DIR/pid & \n"
             "sleep 1000"));
  if (path_.empty()) GTEST_SKIP() << "no cgroup: " << running(dir).no_cgroup;
  const ProcessId survivor = process_in("pid");
  ASSERT_TRUE(send_signal(disk_, running(dir).shim, SIGKILL));
  until_phase(dir, ShimPhase::lost);
  ASSERT_TRUE(io::ok(kill_lost_rank(disk_, clock_, dir)));
  EXPECT_FALSE(is_alive(disk_, survivor));
  until([&] { return io::code_of(disk_.info(path_)) == Errc::not_found; });
}

}  // namespace
}  // namespace ff::shim

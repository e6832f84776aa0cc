// Process table and cgroups, from texts of the kernel, and killing a cgroup of version 2.
#include "ops/shim/process_table.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "ops/shim/cgroup.h"
#include "platform/base/clock.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/io/test_bytes.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::shim {
namespace {

std::string stat_line(const std::string& name, const std::string& state, int threads) {
  return "72 (" + name + ") " + state + " 71 72 72 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 " +
         std::to_string(threads) + " 0 9036 8192 100 18446744073709551615 1 1\n";
}

TEST(ParseStat, NamesMayHoldAnything) {
  for (const std::string name : {"sh", "a b", ") S 1 2 3", "(x)", "", "\n"}) {
    const auto read = parse_stat(stat_line(name, "S", 1));
    ASSERT_TRUE(read.has_value()) << name;
    EXPECT_EQ(read->id, (ProcessId{72, 9036}));
    EXPECT_EQ(read->parent, 71);
    EXPECT_FALSE(read->is_zombie);
  }
}

TEST(ParseStat, AZombieWithThreadsHasNotEnded) {
  EXPECT_TRUE(parse_stat(stat_line("x", "Z", 1))->is_zombie);
  EXPECT_FALSE(parse_stat(stat_line("x", "Z", 2))->is_zombie);
}

TEST(ParseStat, WhatIsNoneIsNone) {
  for (const std::string text : {"", "72", "72 (sh) S", "x (sh) S 1 2", "0 (sh) S"}) {
    EXPECT_FALSE(parse_stat(text).has_value()) << text;
  }
}

TEST(Descendants, OfAllGenerations) {
  const std::vector<ProcessInfo> all = {
      {{5, 1}, 4, false}, {{2, 1}, 1, false}, {{3, 1}, 2, false}, {{4, 1}, 3, true}, {{9, 1}, 1}};
  const auto found = descendants(all, {2});
  std::set<pid_t> pids;
  for (const ProcessInfo& one : found) pids.insert(one.id.pid);
  EXPECT_EQ(pids, (std::set<pid_t>{3, 4, 5}));
}

TEST(Processes, ThisOneIsThere) {
  io::SystemDisk disk;
  const auto self = find_process(disk, ::getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_TRUE(is_alive(disk, self->id));
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_FALSE(is_alive(disk, {self->id.pid, self->id.start + 1}));
  // The signal is for an earlier process of this pid, and would kill this process.
  EXPECT_FALSE(send_signal(disk, {self->id.pid, self->id.start + 1}, SIGKILL));
  EXPECT_TRUE(send_signal(disk, self->id, 0));
}

TEST(Mountinfo, BothVersionsAreFound) {
  const std::string text =
      "25 30 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
      "26 25 0:23 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "27 25 0:24 / /sys/fs/cgroup/a\\040memory rw shared:9 - cgroup cgroup rw,memory\n"
      "28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
      "half a line\n";
  EXPECT_EQ(parse_mountinfo(text),
            (std::vector<Hierarchy>{{CgroupKind::v2, "/sys/fs/cgroup/unified"},
                                    {CgroupKind::v1, "/sys/fs/cgroup/a memory"}}));
  EXPECT_TRUE(parse_mountinfo("").empty());
}

TEST(Cgroup, NoneWasAskedFor) {
  io::SystemDisk disk;
  Cgroup none = Cgroup::make(disk, {.parent = "", .name = "x"});
  EXPECT_EQ(none.kind(), CgroupKind::none);
  EXPECT_FALSE(none.why().empty());
  EXPECT_TRUE(none.add(::getpid()).ok());
  EXPECT_TRUE(none.members().empty());
  EXPECT_FALSE(none.kill_all());
  EXPECT_FALSE(none.peak_memory().has_value());
  EXPECT_TRUE(none.remove());
}

// Kernel files in a folder: version 2 is used if it has the controller, which is then enabled for
// children.
TEST(Cgroup, Version2IsPreparedFromItsRootOn) {
  sim::SimClock clock;
  sim::SimDisk disk(1, clock);
  const std::string root = "/sys/fs/cgroup", task = root + "/ff/tasks", rank = task + "/rank-1";
  ASSERT_TRUE(io::make_dirs(disk, rank).ok());
  ASSERT_TRUE(io::make_dirs(disk, "/proc/self").ok());
  const auto put = [&](const std::string& path, std::string_view text) {
    ASSERT_TRUE(io::ok(io::put(disk, path, text)));
  };
  put("/proc/self/mountinfo", "28 25 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put(root + "/cgroup.controllers", "cpu io memory pids\n");
  put(root + "/cgroup.subtree_control", "cpu memory\n");
  for (const std::string& path : {root + "/ff", task}) put(path + "/cgroup.subtree_control", "");
  for (const char* const name : {"/memory.max", "/memory.swap.max"}) put(rank + name, "");
  const CgroupSpec plan{.parent = "ff/tasks", .name = "rank-1", .memory_limit = 1 << 30};
  const Cgroup cgroup = Cgroup::make(disk, plan);
  EXPECT_EQ(cgroup.kind(), CgroupKind::v2) << cgroup.why();
  EXPECT_EQ(cgroup.path(), rank);
  EXPECT_EQ(io::get(disk, root + "/cgroup.subtree_control"), "cpu memory\n");
  EXPECT_EQ(io::get(disk, root + "/ff/cgroup.subtree_control"), "+memory");
  EXPECT_EQ(io::get(disk, task + "/cgroup.subtree_control"), "+memory");
  EXPECT_EQ(io::get(disk, rank + "/memory.max"), "1073741824");
  EXPECT_EQ(io::get(disk, rank + "/memory.swap.max"), "0");
  put(rank + "/memory.peak", "4096\n");
  put(rank + "/memory.events", "low 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n");
  EXPECT_EQ(cgroup.peak_memory(), 4096u);
  EXPECT_EQ(cgroup.oom_killed(), true);
  put(root + "/cgroup.controllers", "cpu\n");
  const Cgroup none = Cgroup::make(disk, plan);
  EXPECT_EQ(none.kind(), CgroupKind::none);
  EXPECT_FALSE(none.why().empty());
}

// Also where its hierarchy has no controllers.
TEST(Cgroup, OfVersion2IsKilledAtOnce) {
  io::SystemDisk disk;
  std::string path;
  for (const std::string root : {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"}) {
    path = root + "/ff_test_" + std::to_string(::getpid());
    if (disk.info(root + "/cgroup.controllers") && disk.make_dir(path, 0755)) break;
    path.clear();
  }
  if (path.empty()) GTEST_SKIP() << "no hierarchy of version 2 can be written here";
  Cgroup cgroup(disk, CgroupKind::v2, path);
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (;;) ::pause();
  }
  EXPECT_TRUE(io::ok(cgroup.add(pid)));
  EXPECT_EQ(cgroup.members(), std::vector<pid_t>{pid});
  const bool killed = cgroup.kill_all();
  if (!killed) ::kill(pid, SIGKILL);  // a kernel before 5.14
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
  SystemClock clock;
  const int64_t end_ns = clock.steady_ns() + 60 * kSecond;
  while (!cgroup.remove() && clock.steady_ns() < end_ns) clock.sleep_ns(10 * kMillisecond);
  EXPECT_EQ(io::code_of(disk.info(path)), Errc::not_found);
}

}  // namespace
}  // namespace ff::shim

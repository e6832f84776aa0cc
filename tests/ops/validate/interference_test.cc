// Other load on a machine: synthetic /proc at two points in time, jobs that must not be disturbed,
// and real load beside a real measurement.
#include "ops/validate/interference.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "platform/io/system_disk.h"
#include "platform/io/temp_dir.h"

namespace ff::validate {
namespace {

namespace fs = std::filesystem;

class InterferenceTest : public testing::Test {
 protected:
  // One snapshot: total CPU seconds, stolen ones, those of one process.
  MachineUsage at(double seconds, double busy, double stolen, double used, uint64_t moved = 0) {
    MachineUsage usage{.busy = busy, .stolen = stolen};
    usage.at_ns = static_cast<int64_t>(seconds * 1e9);
    usage.processes[42] = {.name = "miner", .seconds = used, .moved = moved};
    usage.processes[7] = {.name = "ff", .seconds = busy - used};
    return usage;
  }
  std::string words(const MachineUsage& before, const MachineUsage& after, double own) {
    return other_load(before, after, {.pid = 7, .seconds = own}, 8);
  }
  void process(const std::string& pid, const std::string& name) {
    const fs::path dir = fs::path(dir_.path()) / "proc" / pid;
    fs::create_directories(dir / "fd");
    std::ofstream(dir / "stat") << pid << " (" << name << ") S 1 " << pid << " " << pid
                                << " 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 100 1000000 300 0\n";
  }

  io::TempDir dir_;
  io::SystemDisk disk_;
  SystemClock clock_;
  SystemTree tree_{disk_, dir_.path()};
};

TEST_F(InterferenceTest, NobodyElseIsNoLoad) {
  EXPECT_EQ(words(at(0, 10, 0, 5), at(10, 30, 0, 5.5), 19.5), "");
}

TEST_F(InterferenceTest, WhoUsedMostIsNamed) {
  EXPECT_EQ(words(at(0, 0, 0, 0), at(10, 25, 0, 15), 10), "miner (42) used 1.5 cores");
}

TEST_F(InterferenceTest, ManySmallOnesAreToldTogether) {
  EXPECT_EQ(words(at(0, 0, 0, 0), at(10, 30, 0, 1), 10), "all others together 2.0 cores");
}

TEST_F(InterferenceTest, WhatAHypervisorTookIsTold) {
  EXPECT_EQ(words(at(0, 0, 0, 0), at(10, 10, 8, 0), 10), "other guests took 0.8 cores");
}

TEST_F(InterferenceTest, WhoMovesDataIsTold) {
  EXPECT_EQ(words(at(0, 0, 0, 0), at(10, 10, 0, 0, 10'000 * kMiB), 10),
            "miner (42) moved 1000MiB/s of disks");
}

TEST_F(InterferenceTest, WhoLooksIsNoLoad) {
  MachineUsage after = at(10, 30, 0, 0, 0);
  after.processes[8] = {.name = "ff", .seconds = 20, .moved = 10'000 * kMiB};
  EXPECT_EQ(words(at(0, 0, 0, 0), after, 10), "");
}

TEST_F(InterferenceTest, AMomentIsTooShortToTell) {
  EXPECT_EQ(words(at(0, 0, 0, 0), at(0.05, 1, 0, 1), 0.05), "");
}

TEST_F(InterferenceTest, AStepOfSlurmIsAJob) {
  process("100", "bash");
  EXPECT_EQ(running_job(tree_), "");
  process("101", "slurmstepd");
  EXPECT_EQ(running_job(tree_), "slurmstepd (101), a step of Slurm");
}

TEST_F(InterferenceTest, ARankOfTheSchedulerIsAJob) {
  const auto runs = [&](const std::string& pid, const std::string& line) {
    process(pid, "ff");
    std::ofstream(fs::path(dir_.path()) / "proc" / pid / "cmdline") << line;
  };
  using namespace std::string_literals;
  runs("100", "ff\0schedule\0agent\0"s);
  runs("101", "ff\0schedule\0"s);
  EXPECT_EQ(running_job(tree_), "");
  runs("102", "/usr/bin/ff\0schedule\0shim\0/var/lib/ff/x\0"s);
  EXPECT_EQ(running_job(tree_), "ff (102), a task of 'ff schedule'");
}

TEST_F(InterferenceTest, WhoHasAGpuOpenIsAJobAndWhoWatchesItIsNot) {
  process("100", "nvidia-persiste");
  fs::create_symlink("/dev/nvidia0", fs::path(dir_.path()) / "proc/100/fd/3");
  EXPECT_EQ(running_job(tree_), "");
  process("101", "python3) (x");
  fs::create_symlink("/dev/nvidia0", fs::path(dir_.path()) / "proc/101/fd/9");
  EXPECT_EQ(running_job(tree_), "python3) (x (101), which has a GPU open");
}

TEST_F(InterferenceTest, AGuestIsToldByItsProcessor) {
  fs::create_directories(dir_ / "proc");
  EXPECT_FALSE(is_guest(tree_));
  std::ofstream(dir_ / "proc/cpuinfo") << "processor : 0\nflags\t\t: fpu vme\n";
  EXPECT_FALSE(is_guest(tree_));
  std::ofstream(dir_ / "proc/cpuinfo") << "processor : 0\nflags\t\t: fpu hypervisor vme\n";
  EXPECT_TRUE(is_guest(tree_));
}

TEST_F(InterferenceTest, UsageIsReadFromProc) {
  process("100", "worker");
  std::ofstream(dir_ / "proc/stat") << "cpu  100 50 25 9999 1 2 3 77 0 0\ncpu0 1 1 1 1 1 1 1 1\n";
  std::ofstream(dir_ / "proc/100/io") << "rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n";
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const MachineUsage usage = usage_of(tree_, clock_);
  EXPECT_DOUBLE_EQ(usage.busy, 175 / ticks);
  EXPECT_DOUBLE_EQ(usage.stolen, 77 / ticks);
  ASSERT_TRUE(usage.processes.contains(100));
  EXPECT_EQ(usage.processes.at(100).name, "worker");
  EXPECT_DOUBLE_EQ(usage.processes.at(100).seconds, 200 / ticks);
  EXPECT_EQ(usage.processes.at(100).moved, 12'288u);
}

}  // namespace
}  // namespace ff::validate

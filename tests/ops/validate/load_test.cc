// Helpers of loads: facts about the machine, and timing of threads that work in rounds.
#include "ops/validate/load.h"

#include <gtest/gtest.h>

#include "ops/validate/machine.h"

namespace ff::validate {
namespace {

TEST(FreeMemory, IsTheMachinesOrWhatAContainerLeaves) {
  Machine machine("");
  EXPECT_EQ(free_memory(machine.tree), 0u);
  machine.patch("/proc/meminfo\n    MemTotal:  2000 kB\n    MemAvailable:  1000 kB\n");
  EXPECT_EQ(free_memory(machine.tree), 1000 * kKiB);
  machine.patch(
      "/proc/self/cgroup = 0::/pod/job\n/sys/fs/cgroup/pod/job/memory.max = max\n"
      "/sys/fs/cgroup/pod/job/memory.current = 5\n");
  EXPECT_EQ(free_memory(machine.tree), 1000 * kKiB) << "no limit";
  machine.patch(
      "/sys/fs/cgroup/pod/memory.max = 150000\n"
      "/sys/fs/cgroup/pod/memory.current = 50000\n");
  EXPECT_EQ(free_memory(machine.tree), 100'000u) << "the pod's limit holds for its jobs";
  machine.patch("/sys/fs/cgroup/pod/job/memory.max = 3\n");
  EXPECT_EQ(free_memory(machine.tree), 0u) << "it has more than it may";
}

TEST(TurnTimes, LastFromTheFirstThatBeginsToTheLastThatEnds) {
  TurnTimes spans;
  spans.add(0, 10 * kSecond, 11 * kSecond);
  spans.add(0, 9 * kSecond, 10 * kSecond);
  spans.add(1, 20 * kSecond, 21 * kSecond);
  spans.add(1, 20 * kSecond, 24 * kSecond);
  EXPECT_DOUBLE_EQ(spans.shortest_seconds(), 2);
  EXPECT_GT(TurnTimes().shortest_seconds(), 0);
}

TEST(OnEach, RunsOnEveryProcessorThatMayBeUsed) {
  const auto cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  std::vector<int> ran(cpus.size());
  on_each(cpus, [&](size_t index) { ran[index]++; });
  EXPECT_EQ(ran, std::vector<int>(cpus.size(), 1));
}

}  // namespace
}  // namespace ff::validate

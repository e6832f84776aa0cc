// A thread that stays on one CPU, and the threads that work for it, which may use all of them.
#include "platform/base/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <thread>

#include "platform/base/worker_thread.h"

namespace ff {
namespace {

std::vector<int> cpus_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(Cpus, AThreadStaysOnItsCpuAndItsWorkersMayUseAll) {
  const std::vector<int> all = usable_cpus();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all, cpus_of_this_thread());
  std::thread([&all] {
    pin_thread(0);
    EXPECT_EQ(cpus_of_this_thread(), std::vector<int>{all.front()});
    pin_thread(2 * all.size() - 1);
    EXPECT_EQ(cpus_of_this_thread(), std::vector<int>{all.back()});
    std::promise<std::vector<int>> of_worker;
    WorkerThread worker;
    worker.post([&of_worker] { of_worker.set_value(cpus_of_this_thread()); });
    EXPECT_EQ(of_worker.get_future().get(), all);
  }).join();
}

}  // namespace
}  // namespace ff

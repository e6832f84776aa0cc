// cpus.cc: affinity of threads (sched_setaffinity(2)).
#include "platform/base/cpus.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>

namespace ff {

namespace {

std::atomic<bool> any_pinned = false;

void stay_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  (void)::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

std::vector<int> usable_cpus() {
  static const std::vector<int> cpus = [] {
    std::vector<int> found;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return found;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) found.push_back(cpu);
    }
    return found;
  }();
  return cpus;
}

void pin_thread(size_t number) {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.empty()) return;
  any_pinned = true;
  stay_on({cpus[number % cpus.size()]});
}

void unpin_thread() {
  if (any_pinned) stay_on(usable_cpus());
}

}  // namespace ff

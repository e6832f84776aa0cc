// clock.cc: SystemClock, the machine's clocks behind the Clock seam.
#include "platform/base/clock.h"

#include <ctime>

namespace ff {
namespace {

int64_t read_clock(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * kSecond + now.tv_nsec;
}

}  // namespace

int64_t SystemClock::wall_ns() { return read_clock(CLOCK_REALTIME); }
int64_t SystemClock::steady_ns() { return read_clock(CLOCK_BOOTTIME); }

int64_t thread_cpu_ns() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void SystemClock::sleep_ns(int64_t ns) {
  if (ns <= 0) return;
  const timespec span{ns / kSecond, ns % kSecond};
  nanosleep(&span, nullptr);
}

}  // namespace ff

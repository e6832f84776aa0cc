// The seam for time. Code above floor 1 reads clocks and sleeps only through this interface, so
// that a simulation (sim/sim_clock.h) runs hours in milliseconds and can be repeated from a seed.
#pragma once

#include <cstdint>

namespace ff {

// In nanoseconds, like all times in ff.
constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kMillisecond = 1000 * kMicrosecond;
constexpr int64_t kSecond = 1000 * kMillisecond;
constexpr double to_seconds(int64_t ns) { return static_cast<double>(ns) / kSecond; }

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since the Unix epoch (CLOCK_REALTIME); jumps when the system clock is set.
  virtual int64_t wall_ns() = 0;
  // Monotonic nanoseconds that include suspend (CLOCK_BOOTTIME); the origin is arbitrary.
  virtual int64_t steady_ns() = 0;
  // Returns after `ns` nanoseconds, or earlier when a signal arrives.
  virtual void sleep_ns(int64_t ns) = 0;
};

// The machine's clocks.
class SystemClock final : public Clock {
 public:
  int64_t wall_ns() override;
  int64_t steady_ns() override;
  void sleep_ns(int64_t ns) override;
};

// CPU time that the calling thread has used (CLOCK_THREAD_CPUTIME_ID). Not part of the seam: a
// simulation does not model CPU time.
int64_t thread_cpu_ns();

}  // namespace ff

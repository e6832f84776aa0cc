// The time seam. Nothing above floor 1 reads a clock or sleeps except through this, so that
// simulation (sim/sim_clock.h) can run hours in milliseconds and repeat them from a seed.
#pragma once

#include <cstdint>

namespace ff {

// In nanoseconds, as all times are.
constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kMillisecond = 1000 * kMicrosecond;
constexpr int64_t kSecond = 1000 * kMillisecond;
constexpr double to_seconds(int64_t ns) { return static_cast<double>(ns) / kSecond; }

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since the Unix epoch; may jump when the clock is set.
  virtual int64_t wall_ns() = 0;
  // Nanoseconds that only grow, suspend included (CLOCK_BOOTTIME); the origin is arbitrary.
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

// What the calling thread has used of a processor so far, as measured: no seam, for simulated time
// knows none.
int64_t thread_processor_ns();

}  // namespace ff

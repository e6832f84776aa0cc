// StopToken: asks a long synchronous action to end. It combines the user's Ctrl-C and the deadline
// of the action; loops call check() at each step and return its error. Coroutines use
// CancellationToken (cancellation.h) instead.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff {

class StopToken {
 public:
  // deadline_ns: the steady time (Clock::steady_ns()) at which the action fails; 0 for never.
  explicit StopToken(Clock& clock, int64_t deadline_ns = 0)
      : clock_(clock), deadline_ns_(deadline_ns) {}

  // Asks all users of this object to end. Safe in a signal handler.
  void request() { requested_.store(true, std::memory_order_relaxed); }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }

  // Errc::interrupted after request(), Errc::deadline after the deadline, else success.
  Result<void> check() const;

  Clock& clock() const { return clock_; }
  // Sleeps for `ns`, in slices that notice request() within 100 ms; then returns check().
  Result<void> sleep_ns(int64_t ns) const;

 private:
  Clock& clock_;
  int64_t deadline_ns_;
  std::atomic<bool> requested_{false};
};

}  // namespace ff

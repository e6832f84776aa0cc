// Stop: how a long action learns that it should end. One object carries the user's Ctrl-C and the
// action's deadline; loops ask `check()` at each step and pass its error up.
#pragma once

#include <atomic>
#include <cstdint>

#include "platform/base/clock.h"
#include "platform/base/result.h"

namespace ff {

class Stop {
 public:
  // deadline_ns: Clock::steady_ns() at which the action fails; 0 for never.
  explicit Stop(Clock& clock, int64_t deadline_ns = 0) : clock_(clock), deadline_ns_(deadline_ns) {}

  // Asks every user of this object to end; safe in a signal handler.
  void request() { requested_.store(true, std::memory_order_relaxed); }
  bool requested() const { return requested_.load(std::memory_order_relaxed); }

  // Error `interrupted` after request(), `deadline` past the deadline, else nothing.
  Result<void> check() const;

  Clock& clock() const { return clock_; }
  // Sleeps up to `ns`, in slices short enough to notice request() within 100 ms; then check().
  Result<void> sleep_ns(int64_t ns) const;

 private:
  Clock& clock_;
  int64_t deadline_ns_;
  std::atomic<bool> requested_{false};
};

}  // namespace ff

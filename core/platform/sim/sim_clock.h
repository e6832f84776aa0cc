// A manually advanced clock: sleeping advances it at once, so simulated hours take no real time and
// repeat exactly. Single-threaded.
#pragma once

#include <cstdint>

#include "platform/base/clock.h"

namespace ff::sim {

class SimClock final : public Clock {
 public:
  // 2026-01-01T00:00:00Z: a plausible wall time.
  static constexpr int64_t kStartNs = 1'767'225'600'000'000'000;

  explicit SimClock(int64_t wall_ns = kStartNs) : wall_offset_ns_(wall_ns) {}

  int64_t wall_ns() override { return wall_offset_ns_ + steady_ns_; }
  int64_t steady_ns() override { return steady_ns_; }
  void sleep_ns(int64_t ns) override { advance(ns); }

  // Advances the time; zero or negative values do nothing.
  void advance(int64_t ns);
  // Sets the wall clock; the steady clock is not affected.
  void set_wall(int64_t wall_ns) { wall_offset_ns_ = wall_ns - steady_ns_; }

 private:
  int64_t wall_offset_ns_;
  int64_t steady_ns_ = 0;
};

}  // namespace ff::sim

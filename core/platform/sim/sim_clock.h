// A clock that moves only when told: sleeping advances it at once, so hours of simulated time take
// no time and repeat exactly. One thread.
#pragma once

#include <cstdint>

#include "platform/base/clock.h"

namespace ff::sim {

class SimClock final : public Clock {
 public:
  // 2026-01-01T00:00:00Z, a plausible wall time for files and indexes.
  static constexpr int64_t kStartNs = 1'767'225'600'000'000'000;

  explicit SimClock(int64_t wall_ns = kStartNs) : wall_offset_ns_(wall_ns) {}

  int64_t wall_ns() override { return wall_offset_ns_ + steady_ns_; }
  int64_t steady_ns() override { return steady_ns_; }
  void sleep_ns(int64_t ns) override { advance(ns); }

  // Time passes; negative or zero does nothing.
  void advance(int64_t ns);
  // Somebody sets the wall clock; steady time goes on as before.
  void set_wall(int64_t wall_ns) { wall_offset_ns_ = wall_ns - steady_ns_; }

 private:
  int64_t wall_offset_ns_;
  int64_t steady_ns_ = 0;
};

}  // namespace ff::sim

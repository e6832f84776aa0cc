// A world on one thread: virtual time and the loops that live in it. When no loop has anything
// ready, time jumps to the earliest timer of any. Equal programs run in equal order, so a run
// repeats from its seed.
//
// The world has a loop of its own, on true time, for what is outside of all nodes: the network, the
// script of a test. Every simulated process has one more, with a clock of its own that drifts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "platform/base/loop.h"
#include "platform/sim/sim_clock.h"

namespace ff::sim {

class SimLoop;

class SimWorld {
 public:
  SimWorld();
  ~SimWorld();

  SimClock& clock() { return clock_; }
  SimLoop& loop() { return *loop_; }
  int64_t now_ns() { return clock_.steady_ns(); }

  // Until nothing is left that could happen, or true time is `until_ns`.
  void run_until(int64_t until_ns);
  void run_for(int64_t ns) { run_until(now_ns() + ns); }

 private:
  friend class SimLoop;
  // One turn of every loop, then a jump in time; false when nothing is left before `until_ns`.
  bool step(int64_t until_ns);

  SimClock clock_;
  uint64_t turns_ = 0;           // since time last passed: a loop that is never idle is a mistake
  std::vector<SimLoop*> loops_;  // in the order they were made
  std::unique_ptr<SimLoop> loop_;
};

// The clock of one simulated machine: it runs too fast or too slow, and tells a wrong wall time.
struct Skew {
  int64_t drift_ppm = 0;       // parts per million fast, negative for slow
  int64_t wall_offset_ns = 0;  // added to the true wall time
};

class SkewedClock final : public Clock {
 public:
  SkewedClock(SimClock& truth, Skew skew) : truth_(truth), skew_(skew) {}

  int64_t wall_ns() override { return truth_.wall_ns() + skew_.wall_offset_ns; }
  int64_t steady_ns() override;
  void sleep_ns(int64_t ns) override { truth_.advance(ns); }
  // The first true time at which steady_ns() is at least `steady_ns`.
  int64_t true_ns(int64_t steady_ns);

 private:
  SimClock& truth_;
  Skew skew_;
};

// The loop of one process. Destroyed before the world, and not from inside itself.
class SimLoop final : public Loop {
 public:
  explicit SimLoop(SimWorld& world, Skew skew = {});
  ~SimLoop() override;

  Result<std::unique_ptr<FdWatch>> watch(int fd) override;
  // Runs the whole world until this loop's stop(), or until nothing is left.
  void run() override;
  // The process is stopped (SIGSTOP) and goes on; its clock does not stand still meanwhile.
  void set_paused(bool paused) { paused_ = paused; }
  SimWorld& world() { return world_; }

 private:
  friend class SimWorld;
  // Made first: the loop is built on it.
  SimLoop(SimWorld& world, std::unique_ptr<SkewedClock> clock);
  void interrupt() override {}

  SimWorld& world_;
  std::unique_ptr<SkewedClock> skewed_;
  bool paused_ = false;
};

}  // namespace ff::sim

// A discrete-event simulation on one thread: virtual time and the loops of all simulated processes.
// When no loop has work, time jumps to the earliest timer. Execution is deterministic, so a run
// repeats from its seed.
//
// The world has a loop of its own, on true time, for everything outside of the nodes: the network
// and the test. Every simulated process has another loop, with its own drifting clock.
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

  // Runs until no event is left, or true time reaches `until_ns`.
  void run_until(int64_t until_ns);
  void run_for(int64_t ns) { run_until(now_ns() + ns); }

 private:
  friend class SimLoop;
  // Runs one turn of every loop, then advances the time; false if no event is left before
  // `until_ns`.
  bool step(int64_t until_ns);

  SimClock clock_;
  uint64_t turns_ = 0;           // turns since time last advanced, to detect busy loops
  std::vector<SimLoop*> loops_;  // in the order of creation
  std::unique_ptr<SimLoop> loop_;
};

// The clock error of one simulated machine.
struct ClockSkew {
  int64_t drift_ppm = 0;       // parts per million; positive: fast, negative: slow
  int64_t wall_offset_ns = 0;  // added to the true wall time
};

class SkewedClock final : public Clock {
 public:
  SkewedClock(SimClock& truth, ClockSkew skew) : truth_(truth), skew_(skew) {}

  int64_t wall_ns() override { return truth_.wall_ns() + skew_.wall_offset_ns; }
  int64_t steady_ns() override;
  void sleep_ns(int64_t ns) override { truth_.advance(ns); }
  // The first true time at which steady_ns() is at least `steady_ns`.
  int64_t true_ns(int64_t steady_ns);

 private:
  SimClock& truth_;
  ClockSkew skew_;
};

// The loop of one simulated process. Destroy it before the world, and not from within the loop.
class SimLoop final : public Loop {
 public:
  explicit SimLoop(SimWorld& world, ClockSkew skew = {});
  ~SimLoop() override;

  Result<std::unique_ptr<FdWatch>> watch(int fd) override;
  // Runs the whole world until this loop's stop(), or until no event is left.
  void run() override;
  // Pauses (SIGSTOP) or resumes the process; its clock continues meanwhile.
  void set_paused(bool paused) { paused_ = paused; }
  SimWorld& world() { return world_; }

 private:
  friend class SimWorld;
  // Constructed first: the base class needs it.
  SimLoop(SimWorld& world, std::unique_ptr<SkewedClock> clock);
  void interrupt() override {}

  SimWorld& world_;
  std::unique_ptr<SkewedClock> skewed_;
  bool paused_ = false;
};

}  // namespace ff::sim

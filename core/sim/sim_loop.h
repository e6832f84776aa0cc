// A loop on virtual time: when nothing is ready, the clock jumps to the next timer. One thread, no
// descriptors; equal programs fire in equal order.
//
// Several clocks can run on it: timers follow the loop's own, and a node with a skewed clock is
// given a loop view of its own by sim_world.h.
#pragma once

#include <memory>

#include "base/loop.h"
#include "sim/sim_clock.h"

namespace ff::sim {

class SimLoop final : public Loop {
 public:
  explicit SimLoop(SimClock& clock) : Loop(clock), sim_clock_(clock) {}

  Result<std::unique_ptr<FdWatch>> watch(int fd) override;
  // Also returns when nothing is left that could happen.
  void run() override;
  // Until `until_ns` of virtual time, or stop().
  void run_until(int64_t until_ns);

 private:
  void interrupt() override {}

  SimClock& sim_clock_;
};

}  // namespace ff::sim

// sim_clock.cc: advancing the simulated time (sim_clock.h).
#include "platform/sim/sim_clock.h"

namespace ff::sim {

void SimClock::advance(int64_t ns) {
  if (ns > 0) steady_ns_ += ns;
}

}  // namespace ff::sim

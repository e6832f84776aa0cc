// simulation.cc: violations and identities of a simulation.
#include "lab/scenario/simulation.h"

#include <fmt/format.h>

#include "platform/base/clock.h"

namespace ff::scenario {

void Simulation::report_violation(std::string what) {
  if (violation) return;
  violation =
      fail(Errc::corrupt, "at {:.6f} s: {}", static_cast<double>(world.now_ns()) / kSecond, what);
}

rpc::Identity Simulation::identity(std::string name) {
  return {.name = std::move(name), .software = "ff story"};
}

}  // namespace ff::scenario

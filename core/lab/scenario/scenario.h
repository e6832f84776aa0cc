// Scenarios: simulated clusters that run the real code with random faults from a seed, and check
// invariants all the time. `ff sim` replays a scenario; the tests run many seeds.
//
// A failure names its seed; the same seed fails in the same way, in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::scenario {

struct ScenarioResult {
  uint64_t trace = 0;      // equal for equal runs
  int64_t virtual_ns = 0;  // simulated time
  uint64_t steps = 0;      // operations of the load: calls, writes, ...
  uint64_t faults = 0;     // injected faults
  uint64_t bytes = 0;      // bytes delivered by the network
};

struct Scenario {
  std::string_view name;
  std::string_view about;  // one line
  // Errc::corrupt: an invariant is violated; the message names it, the time and the place.
  Result<ScenarioResult> (*run)(uint64_t seed);
};

}  // namespace ff::scenario

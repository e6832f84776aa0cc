// Stories: whole clusters of the real code in simulation, under faults drawn from a seed, with
// invariants that hold at every moment. `ff sim` replays one; the tests run many seeds.
//
// A story that fails names the seed; the same seed fails the same way, in every build.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/result.h"

namespace ff::scenario {

struct Outcome {
  uint64_t trace = 0;      // equal for equal runs
  int64_t virtual_ns = 0;  // time that passed in the story
  uint64_t steps = 0;      // what was tried: calls, writes, ...
  uint64_t faults = 0;     // what befell it
  uint64_t bytes = 0;      // carried by its network
};

struct Story {
  std::string_view name;
  std::string_view about;  // one line
  // Errc::corrupt: an invariant was broken; the message says which, when and where.
  Result<Outcome> (*run)(uint64_t seed);
};

}  // namespace ff::scenario

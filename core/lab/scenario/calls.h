// The scenario of rpc/: two servers and four clients with drifting clocks. For a minute links are
// blocked, slowed and broken, processes are killed and machines fail, while the clients keep
// calling.
//
// Invariants:
// - A call that was answered was executed exactly once, a failed call at most once.
// - A successful read has filled its memory; after a failed read nobody writes the memory.
// - No call exceeds its deadline by more than the time of a cancel.
// - After the faults are healed, every client gets answers again. After all clients are closed, no
//   server has a connection or a call left.
#pragma once

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_calls(uint64_t seed);

}  // namespace ff::scenario

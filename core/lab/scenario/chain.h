// The scenario of chain/: three managers, three storage nodes with chunk stores on simulated disks,
// and programs that write, read and sync. Processes are killed and paused, machines lose power,
// links are blocked (also one-way), disks fail, clocks drift. Invariants:
//
// - The history is linearizable (chain_history.h): no update is applied twice, and no acknowledged
//   update is lost.
// - If the last serving target of a chain loses power, only unsynced updates may be lost.
// - A read returns the bytes of exactly one update.
//
// After the faults are healed, every running update ends, every target serves again, and all
// replicas of a chain are equal.
#pragma once

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_chain(uint64_t seed);

}  // namespace ff::scenario

// Programs that hold directory delegations work in the same directories, while servers, links and
// programs fail. Some programs are killed for good, others are continued from their recovery tables
// as the keeper of a mount does it. What each name referred to must be linearizable, no server may
// refuse what a holder has answered, and who opens a file finds what was written before its close.
#pragma once

#include <cstdint>

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_delegations(uint64_t seed);

}  // namespace ff::scenario

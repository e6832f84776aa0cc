// The scenario of fsync(2) on directories: programs change names, modes and lengths, each in its
// own directory, and sync them, while the metadata store loses power, and with it the latest
// acknowledged changes that were not durable.
//
// Invariants: changes that a program synced without a reported loss are present; a loss is reported
// only if something was lost.
#pragma once

#include <cstdint>

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_names(uint64_t seed);

}  // namespace ff::scenario

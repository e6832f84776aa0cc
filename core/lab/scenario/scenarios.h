// The table of all scenarios, for `ff sim` and the tests.
#pragma once

#include <span>
#include <string_view>

#include "lab/scenario/scenario.h"

namespace ff::scenario {

std::span<const Scenario> scenarios();
// Null: no scenario has this name.
const Scenario* find_scenario(std::string_view name);

}  // namespace ff::scenario

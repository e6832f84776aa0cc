// What a node has: its parts by kind and name, as they were when an operator said that all is there
// (`ff validate adopt`), and held against every run since. So a GPU that fell off the bus is not
// "no GPU", and a node that never had one is green.
#pragma once

#include <string>
#include <string_view>

#include "ops/validate/check.h"

namespace ff::validate {

constexpr std::string_view kUnused = "not in use";  // a port, when the node was adopted
constexpr std::string_view kUnseen = "unseen ";     // before a kind that could not be looked at

// Nothing of a kind is there. Skipped where that was recorded, fail where something was; and
// could-not-run on a node that was never adopted, or adopted by somebody who could not see it.
Finding nothing_of(const Context& context, const char* check, std::string_view kind,
                   std::string found);

}  // namespace ff::validate

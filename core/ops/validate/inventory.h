// The adopted inventory of a node: its parts by kind and name, recorded when an operator confirmed
// that all are present (`ff validate adopt`), and compared with each later run. So a GPU that fell
// off the bus is not reported as "no GPU", and a node that never had one passes.
#pragma once

#include <string>
#include <string_view>

#include "ops/validate/check.h"

namespace ff::validate {

// A port that had no link when the node was adopted.
constexpr std::string_view kNotInUse = "not in use";
// Before a kind that could not be examined.
constexpr std::string_view kUnreadablePrefix = "unseen ";

// The finding for a kind without any part: skipped if it was recorded as absent; fail if a part was
// recorded; could-not-run if the node was never adopted, or was adopted by a user who could not
// examine the kind.
Finding missing_finding(const CheckContext& context, const char* check, std::string_view kind,
                        std::string found);

}  // namespace ff::validate

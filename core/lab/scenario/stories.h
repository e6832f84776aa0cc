// All stories that there are, by name.
#pragma once

#include <span>
#include <string_view>

#include "lab/scenario/story.h"

namespace ff::scenario {

std::span<const Story> stories();
// Null when there is none of that name.
const Story* find_story(std::string_view name);

}  // namespace ff::scenario

// The story of fsync(2) of names: programs change names, modes and lengths, each in a directory of
// its own, and sync them, while the metadata store loses its power, and with it the last changes
// that it had answered and not made durable.
//
// What a program has synced without being told of a loss is there. Who is told of a loss has lost
// something.
#pragma once

#include <cstdint>

#include "lab/scenario/story.h"

namespace ff::scenario {

Result<Outcome> run_names(uint64_t seed);

}  // namespace ff::scenario

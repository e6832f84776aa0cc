// The story of rpc/: two servers, four clients, clocks that drift; for a minute links are cut,
// slowed and broken, processes are killed and machines vanish, while every client calls on.
//
// What must hold, whatever happens:
// - a call that was answered was done exactly once; one that failed, at most once;
// - an answered read has filled its memory; after a failed one the memory is left alone;
// - no call outlives its deadline by more than the time a cancel may take;
// - once all is healed, every client is answered again; once all clients have gone, no server has a
//   connection or a call left.
#pragma once

#include "lab/scenario/story.h"

namespace ff::scenario {

Result<Outcome> run_calls(uint64_t seed);

}  // namespace ff::scenario

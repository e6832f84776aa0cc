// What a turn (turns.h) means: sums and copies in memory of this host's ranks. Any rank of the host
// can do it.
//
// Partial sums travel as partial_type() of the elements, or in a smaller form of floats; that
// is made of kUnit elements at a time, one behind the other. Results go down in the elements' own
// type, or in that smaller form, which the root then takes as well, so that all ranks get the same
// bits.
#pragma once

#include "platform/base/result.h"
#include "training/collective/host_group.h"
#include "training/collective/turns.h"

namespace ff::collective {

// Partial sums of so many elements stay in a core's first cache.
constexpr uint64_t kUnit = 4096;

// How a request's partial sums are written where `wanted` is how floats are; only floats of 32
// bits and less, and only sums, have another way than their own.
simd::Wire wire_of(const Request& request, simd::Wire wanted);
// Of a piece, on its way up and down.
uint64_t up_bytes(const Request& request, simd::Wire wire, uint64_t count);
uint64_t down_bytes(const Request& request, simd::Wire wire, uint64_t count);

// Errors: those of HostGroup::reach().
Result<void> do_turn(HostGroup& group, const Turn& turn);

}  // namespace ff::collective

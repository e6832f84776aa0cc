// Executes items of the work queue: reductions and copies in memory of this host's ranks. Any rank
// can execute any item.
//
// Partial sums travel as simd::partial_type() of the elements, or in a smaller wire format of
// floats, which is encoded kUnitElements at a time. Results go down in the elements' own type, or
// in the smaller format; the root then decodes its own encoding too, so that all ranks get the same
// bits.
#pragma once

#include "platform/base/result.h"
#include "training/collective/host_group.h"
#include "training/collective/work_queue.h"

namespace ff::collective {

// The partial sums of one unit stay in the L1 cache.
constexpr uint64_t kUnitElements = 4096;

// The format of the request's partial sums, where `wanted` is that of floats. Only sums and
// averages of floats with at most 32 bits have another format than their own.
simd::WireType wire_format_of(const CollectiveRequest& request, simd::WireType wanted);
// Bytes of a piece with `count` elements, on its way up and down.
uint64_t up_bytes(const CollectiveRequest& request, simd::WireType wire, uint64_t count);
uint64_t down_bytes(const CollectiveRequest& request, simd::WireType wire, uint64_t count);

// Errors: those of HostGroup::resolve().
Result<void> execute_work(HostGroup& group, const WorkItem& item);

}  // namespace ff::collective

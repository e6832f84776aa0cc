// One read call to a target that fills memory of the caller.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/chain/service.h"
#include "storage/chain/target_calls.h"
#include "storage/cluster/timing.h"

namespace ff::chain {

// A node that writes directly to memory of the caller (net/bulk.h) and no longer responds may be
// paused in the middle of a write. This long after the cancellation of its call, measured by any
// two clocks, it has lost its lease and will not continue.
constexpr int64_t kHaltedNs = cluster::kNodeLeaseNs * 5 / 4;
static_assert(kHaltedNs * 9 > cluster::kNodeLeaseNs * 11);

// `into`: destination of each item of the request; an empty one reads nothing; must outlive the
// call. When it returns, nobody writes there any more; therefore it may return after its deadline.
// Errors: those of TargetCalls.
Task<Result<wire::ReadReply>> read_call(Loop& loop, TargetCalls& calls, cluster::ChainId chain,
                                        cluster::NodeId node, wire::ReadRequest request,
                                        const std::vector<ByteSpan>& into, int64_t deadline_ns);

}  // namespace ff::chain

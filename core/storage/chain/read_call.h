// One call that reads pieces of chunks from a target into memory of the caller's.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/chain/calls.h"
#include "storage/chain/service.h"
#include "storage/cluster/timing.h"

namespace ff::chain {

// A node that reaches memory of the caller's itself (net/bulk.h) and does not answer any more may
// have been halted on its way there. So long after it was told that its call is given up, by any
// two clocks, it has lost its lease, and will not go on.
constexpr int64_t kHaltedNs = cluster::kServeNs * 5 / 4;
static_assert(kHaltedNs * 9 > cluster::kServeNs * 11);

// `into`: where each item of the request goes, empty to be read as nothing; outlives the call.
// However it ends, nobody writes there any more; so it may end later than its deadline. Errors:
// those of Calls.
Task<Result<wire::ReadReply>> read_call(Loop& loop, Calls& calls, cluster::ChainId chain,
                                        cluster::NodeId node, wire::ReadRequest request,
                                        const std::vector<ByteSpan>& into, int64_t deadline_ns);

}  // namespace ff::chain

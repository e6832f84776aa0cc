// RPC methods of a storage node, for each of its targets. Each request names the chain version that
// the caller knows. The target returns Errc::stale when it has another version, does not have the
// required role under it, or may not serve now. The caller then refreshes its routing and retries.
//
// Acknowledged updates may be lost when all replicas lose power before a sync. Therefore responses
// to updates and syncs carry the verifier of the chain. It changes when a target that may have lost
// updates returns as the only one: a sync with another verifier than that of the update does not
// cover the update (as NFS COMMIT, RFC 1813).
#pragma once

#include "platform/rpc/method.h"
#include "storage/chain/chain.pb.h"

namespace ff::chain {

// Limit of one kInodes response.
constexpr uint32_t kInodesMax = 4096;
// Limits of one kChunks response, and of its run.
constexpr uint32_t kChunksMax = 1024;
constexpr uint64_t kRunMax = 65536;

// Methods for clients. Untrusted users need a valid capability of the file (capability.h), else
// they get Errc::refused, per chunk in a read.
//
// Updates go to the head. Errors besides stale: disk_full, usage, refused (superseded by a newer
// update of its channel): nothing was changed; unreachable, deadline, interrupted: the update may
// still be applied.
inline constexpr rpc::Method<wire::WriteRequest, wire::WriteReply> kWrite{0x0301, "chain.write"};
// Any serving target. Errors per chunk: not_found, corrupt, refused.
inline constexpr rpc::Method<wire::ReadRequest, wire::ReadReply> kRead{0x0302, "chain.read"};
// Call to the head, for all targets: updates acknowledged before become durable on all of them. No
// capability.
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0303, "chain.sync"};
// The last chunk of a file; call to the last serving target.
inline constexpr rpc::Method<wire::LastRequest, wire::LastReply> kLast{0x0304, "chain.last"};

// Inodes that have chunks; call to the last serving target.
inline constexpr rpc::Method<wire::InodesRequest, wire::InodesReply> kInodes{0x0305,
                                                                             "chain.inodes"};

// Chunks of a file in a range; call to the last serving target.
inline constexpr rpc::Method<wire::ChunksRequest, wire::ChunksReply> kChunks{0x0306,
                                                                             "chain.chunks"};

// Methods between targets.
inline constexpr rpc::Method<wire::ForwardRequest, wire::WriteReply> kForward{0x0310,
                                                                              "chain.forward"};
// The committed version of a chunk; call to the last serving target.
inline constexpr rpc::Method<wire::CommittedRequest, wire::CommittedReply> kCommitted{
    0x0311, "chain.committed"};
// Copy operations; calls to the syncing target.
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0312, "chain.list"};
inline constexpr rpc::Method<wire::EraseRequest, wire::Done> kErase{0x0313, "chain.erase"};
inline constexpr rpc::Method<wire::CopyRequest, wire::Done> kCopy{0x0314, "chain.copy"};
inline constexpr rpc::Method<wire::ResultsRequest, wire::Done> kResults{0x0315, "chain.results"};
// The copy is complete: the target may now count as a replica.
inline constexpr rpc::Method<wire::CopiedRequest, wire::Done> kCopied{0x0316, "chain.copied"};

// Which of these tombstones the predecessor no longer has; call to the predecessor.
inline constexpr rpc::Method<wire::AbsentRequest, wire::AbsentReply> kAbsent{0x0318,
                                                                             "chain.absent"};
// Chunks in which the successor differs; call to the successor.
inline constexpr rpc::Method<wire::CompareRequest, wire::CompareReply> kCompare{0x0319,
                                                                                "chain.compare"};
// Rewrites a chunk that is damaged on some target; call to the head. Errc::corrupt: no serving
// target has it intact.
inline constexpr rpc::Method<wire::RepairRequest, wire::Done> kRepair{0x0317, "chain.repair"};

}  // namespace ff::chain

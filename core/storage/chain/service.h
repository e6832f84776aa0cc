// The methods of a storage node, for each of its targets. Whoever calls names the chain's version
// that it holds: Errc::stale when the target holds another, does not play that part under it, or
// may not serve now. Then the caller looks for newer routing, and asks again.
//
// Acknowledged updates may be lost when all copies lose power before a sync. So updates and syncs
// are answered with the chain's verifier, which changes when a target that may have lost updates
// has come back as the only one: a sync with another verifier than the update had does not cover it
// (the rule of NFS COMMIT, RFC 1813).
#pragma once

#include "platform/rpc/method.h"
#include "storage/chain/chain.pb.h"

namespace ff::chain {

// In one answer of kInodes.
constexpr uint32_t kInodesMax = 4096;
// In one answer of kChunks, and of its run.
constexpr uint32_t kChunksMax = 1024;
constexpr uint64_t kRunMax = 65536;

// Clients', users' among them, who need a capability of the file (capability.h): without one that
// is good they get Errc::refused, for one chunk of a read like for a call.
//
// Updates go to the head. Errors beside stale: disk_full, usage, refused (overtaken by a newer
// update of its channel): nothing was changed; unreachable, deadline, interrupted: it may still
// happen.
inline constexpr rpc::Method<wire::WriteRequest, wire::WriteReply> kWrite{0x0301, "chain.write"};
// Any target that serves. Errors of one chunk are its own: not_found, corrupt, refused.
inline constexpr rpc::Method<wire::ReadRequest, wire::ReadReply> kRead{0x0302, "chain.read"};
// All targets; the head. What was acknowledged before is durable on all of them. No capability.
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0303, "chain.sync"};
// The last chunk of a file; the last target that serves.
inline constexpr rpc::Method<wire::LastRequest, wire::LastReply> kLast{0x0304, "chain.last"};

// Which files have chunks; the last target that serves.
inline constexpr rpc::Method<wire::InodesRequest, wire::InodesReply> kInodes{0x0305,
                                                                             "chain.inodes"};

// Which chunks of a file there are in a range; the last target that serves.
inline constexpr rpc::Method<wire::ChunksRequest, wire::ChunksReply> kChunks{0x0306,
                                                                             "chain.chunks"};

// Targets' among themselves.
inline constexpr rpc::Method<wire::ForwardRequest, wire::WriteReply> kForward{0x0310,
                                                                              "chain.forward"};
// Which version of a chunk is committed; the last target that serves.
inline constexpr rpc::Method<wire::CommittedRequest, wire::CommittedReply> kCommitted{
    0x0311, "chain.committed"};
// Copying, to the target after the last that serves.
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0312, "chain.list"};
inline constexpr rpc::Method<wire::EraseRequest, wire::Done> kErase{0x0313, "chain.erase"};
inline constexpr rpc::Method<wire::CopyRequest, wire::Done> kCopy{0x0314, "chain.copy"};
inline constexpr rpc::Method<wire::ResultsRequest, wire::Done> kResults{0x0315, "chain.results"};
// It has all: from now on it may count as a replica.
inline constexpr rpc::Method<wire::CopiedRequest, wire::Done> kCopied{0x0316, "chain.copied"};

// Which of some removed chunks it has forgotten; the one before.
inline constexpr rpc::Method<wire::AbsentRequest, wire::AbsentReply> kAbsent{0x0318,
                                                                             "chain.absent"};
// Which chunks the target after has otherwise.
inline constexpr rpc::Method<wire::CompareRequest, wire::CompareReply> kCompare{0x0319,
                                                                                "chain.compare"};
// A chunk that is damaged on some target is written anew; the head. Errc::corrupt: no target that
// serves has it.
inline constexpr rpc::Method<wire::RepairRequest, wire::Done> kRepair{0x0317, "chain.repair"};

}  // namespace ff::chain

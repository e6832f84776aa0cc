// The RPC methods of the metadata service. Any serve-meta can answer any call. Errors carry the
// errno (Error::sys).
//
// A client with the cluster key names the user of each call. A client with a token is always the
// user of the token, and sends a proof with each inode number: servers issue it only with inodes
// that the user reached through directories he may search. So a guessed inode number gives no
// access.
#pragma once

#include "platform/base/clock.h"
#include "platform/rpc/method.h"
#include "storage/meta/meta.pb.h"

namespace ff::meta {

// Whether another server, or a later attempt, may succeed. Other errors are final.
inline bool is_retryable(const Error& error) {
  switch (error.code) {
    case Errc::unreachable:
    case Errc::deadline:
    case Errc::busy:
    case Errc::interrupted: return true;  // the server shuts down
    default: return false;
  }
}

// How often a live client renews itself.
constexpr int64_t kClientRenewNs = 60 * kSecond;
// How long a capability is valid before the client must renew it: what its holder may no longer do,
// storage nodes refuse after this time.
constexpr int64_t kCapabilityLifetimeNs = 8 * kSecond;
// How often the owner of a lock renews it; how long after the last renewal the server releases it;
// and how long after its last renewal the owner treats the lock as lost.
constexpr int64_t kLockRenewNs = 5 * kSecond;
constexpr int64_t kLockExpiryNs = 30 * kSecond;
constexpr int64_t kLockHolderExpiryNs = 20 * kSecond;

inline constexpr rpc::Method<wire::StatRequest, wire::InodeReply> kStat{0x0401, "meta.stat"};
inline constexpr rpc::Method<wire::LookupRequest, wire::InodeReply> kLookup{0x0402, "meta.lookup"};
inline constexpr rpc::Method<wire::WalkRequest, wire::WalkReply> kWalk{0x0403, "meta.walk"};
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0404, "meta.list"};
inline constexpr rpc::Method<wire::MakeRequest, wire::InodeReply> kCreate{0x0405, "meta.make"};
inline constexpr rpc::Method<wire::OpenRequest, wire::InodeReply> kOpen{0x0406, "meta.open"};
inline constexpr rpc::Method<wire::RenewRequest, wire::RenewReply> kRenew{0x0407, "meta.renew"};
inline constexpr rpc::Method<wire::LinkRequest, wire::InodeReply> kLink{0x0408, "meta.link"};
inline constexpr rpc::Method<wire::RemoveRequest, wire::InodeReply> kUnlink{0x0409, "meta.unlink"};
inline constexpr rpc::Method<wire::RemoveRequest, wire::InodeReply> kRmdir{0x040a, "meta.rmdir"};
inline constexpr rpc::Method<wire::RemoveRequest, wire::InodeReply> kRemoveTree{0x040b,
                                                                                "meta.remove_tree"};
inline constexpr rpc::Method<wire::RenameRequest, wire::InodeReply> kRename{0x040c, "meta.rename"};
inline constexpr rpc::Method<wire::SetAttributesRequest, wire::InodeReply> kSetAttributes{
    0x040d, "meta.set_attributes"};
inline constexpr rpc::Method<wire::SetLayoutRequest, wire::InodeReply> kSetLayout{
    0x040e, "meta.set_layout"};
inline constexpr rpc::Method<wire::GetXattrRequest, wire::GetXattrReply> kGetXattr{
    0x040f, "meta.get_xattr"};
inline constexpr rpc::Method<wire::ListXattrsRequest, wire::ListXattrsReply> kListXattrs{
    0x0410, "meta.list_xattrs"};
inline constexpr rpc::Method<wire::SetXattrRequest, wire::InodeReply> kSetXattr{0x0411,
                                                                                "meta.set_xattr"};
// Returns after the chunks are removed.
inline constexpr rpc::Method<wire::TruncateRequest, wire::InodeReply> kTruncate{0x0412,
                                                                                "meta.truncate"};
// A writer reports the length of its file, periodically and when it closes it.
inline constexpr rpc::Method<wire::WroteRequest, wire::InodeReply> kReportLength{0x0413,
                                                                                 "meta.wrote"};
inline constexpr rpc::Method<wire::AppendRequest, wire::InodeReply> kAppend{0x0414, "meta.append"};
// Sent before the first change, then every kClientRenewNs.
inline constexpr rpc::Method<wire::AliveRequest, wire::AliveReply> kRenewClient{0x0415,
                                                                                "meta.alive"};
// Sent every kLockRenewNs while the lock is held.
inline constexpr rpc::Method<wire::LockRequest, wire::LockReply> kLock{0x0416, "meta.lock"};
// Sent in batches: only garbage collection waits for it.
inline constexpr rpc::Method<wire::EndRequest, wire::EndReply> kEndSessions{0x0417, "meta.end"};
constexpr size_t kEndedSessionsMax = 64;  // per call
// Makes acknowledged changes durable, and tells which ones a server has lost
// (uncommitted_changes.h).
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0418, "meta.sync"};

// Delegations (delegation_recalls.h). A holder renews its lease every kDelegationRenewNs, and
// answers nothing by itself once the last successful renewal began kDelegationHolderNs ago. A
// server ends the lease when it has seen no renewal for kDelegationLeaseNs.
constexpr int64_t kDelegationRenewNs = kSecond;
constexpr int64_t kDelegationHolderNs = 4 * kSecond;
constexpr int64_t kDelegationLeaseNs = 6 * kSecond;
constexpr size_t kDelegatedNamesMax = 4096;   // a larger directory is not delegated
constexpr uint32_t kGrantedInodesMax = 1024;  // per call
constexpr uint64_t kIdGrantsMax = 32;         // whose numbers are valid: the last ones of a lease
inline constexpr rpc::Method<wire::LeaseRequest, wire::LeaseReply> kRenewLease{0x0419,
                                                                               "meta.lease"};
inline constexpr rpc::Method<wire::DelegateRequest, wire::DelegateReply> kDelegate{0x041a,
                                                                                   "meta.delegate"};
inline constexpr rpc::Method<wire::BatchRequest, wire::InodeReply> kApplyBatch{0x041b,
                                                                               "meta.apply_batch"};
// Waits for kRecallsWaitNs at most.
constexpr int64_t kRecallsWaitNs = 5 * kSecond;
inline constexpr rpc::Method<wire::RecallsRequest, wire::RecallsReply> kRecalls{0x041c,
                                                                                "meta.recalls"};

// For operators.
inline constexpr rpc::Method<wire::AddUserRequest, wire::UserReply> kSetUser{0x0420,
                                                                             "meta.set_user"};
// Issues a token; or revokes all tokens of the user and removes the user.
inline constexpr rpc::Method<wire::TokenRequest, wire::UserReply> kToken{0x0421, "meta.token"};
inline constexpr rpc::Method<wire::ListUsersRequest, wire::ListUsersReply> kListUsers{
    0x0422, "meta.list_users"};

// May take minutes.
inline constexpr rpc::Method<wire::FsckRequest, wire::FsckReply> kFsck{0x0423, "meta.fsck"};

}  // namespace ff::meta

// The methods of the metadata service, which every serve-meta offers: any of them does for any
// call. Errors carry the errno (Error::sys).
//
// Who holds the cluster's key names the user for whom a call is; a token's holder acts for himself
// whatever he says. He also shows with each inode the proof that he was told of it by a call that
// went its way through directories he may search: inode numbers alone open nothing.
#pragma once

#include "platform/base/clock.h"
#include "platform/rpc/method.h"
#include "storage/meta/meta.pb.h"

namespace ff::meta {

// What another server, or the same one later, may answer otherwise. Other errors are final.
inline bool may_pass(const Error& error) {
  switch (error.code) {
    case Errc::unreachable:
    case Errc::deadline:
    case Errc::busy:
    case Errc::interrupted: return true;  // the server goes down
    default: return false;
  }
}

// How often a client says that it lives.
constexpr int64_t kAliveNs = 60 * kSecond;
// How long a token's holder may use what he has opened before it has to be renewed.
constexpr int64_t kCapabilityNs = 600 * kSecond;
// How often the holder of a lock asks for it again; after how long without that it is taken from
// him; and after how long, counted from when he last asked, he no longer takes it for his own.
constexpr int64_t kLockRenewNs = 5 * kSecond;
constexpr int64_t kLockLapseNs = 30 * kSecond;
constexpr int64_t kLockSureNs = 20 * kSecond;

inline constexpr rpc::Method<wire::StatRequest, wire::InodeReply> kStat{0x0401, "meta.stat"};
inline constexpr rpc::Method<wire::LookupRequest, wire::InodeReply> kLookup{0x0402, "meta.lookup"};
inline constexpr rpc::Method<wire::WalkRequest, wire::WalkReply> kWalk{0x0403, "meta.walk"};
inline constexpr rpc::Method<wire::ListRequest, wire::ListReply> kList{0x0404, "meta.list"};
inline constexpr rpc::Method<wire::MakeRequest, wire::InodeReply> kMake{0x0405, "meta.make"};
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
// Returns once storage is cut.
inline constexpr rpc::Method<wire::TruncateRequest, wire::InodeReply> kTruncate{0x0412,
                                                                                "meta.truncate"};
// What a writer tells when it has written, now and then and at the end.
inline constexpr rpc::Method<wire::WroteRequest, wire::InodeReply> kWrote{0x0413, "meta.wrote"};
inline constexpr rpc::Method<wire::AppendRequest, wire::InodeReply> kAppend{0x0414, "meta.append"};
// Every kAliveNs, before the first change and while something is open.
inline constexpr rpc::Method<wire::AliveRequest, wire::AliveReply> kAlive{0x0415, "meta.alive"};
// Every kLockRenewNs while the lock is held.
inline constexpr rpc::Method<wire::LockRequest, wire::LockReply> kLock{0x0416, "meta.lock"};
// Not at once: nothing but cleaning up waits for it.
inline constexpr rpc::Method<wire::EndRequest, wire::EndReply> kEnd{0x0417, "meta.end"};
constexpr size_t kEndMax = 64;  // files a call
// What was answered before is durable, unless a server has lost it before this call came
// (pending.h).
inline constexpr rpc::Method<wire::SyncRequest, wire::SyncReply> kSync{0x0418, "meta.sync"};

// The operator's.
inline constexpr rpc::Method<wire::AddUserRequest, wire::UserReply> kSetUser{0x0420,
                                                                             "meta.set_user"};
// A new token; or none of the user's hold any more, and the user is gone.
inline constexpr rpc::Method<wire::TokenRequest, wire::UserReply> kToken{0x0421, "meta.token"};
inline constexpr rpc::Method<wire::ListUsersRequest, wire::ListUsersReply> kListUsers{
    0x0422, "meta.list_users"};

// May take minutes.
inline constexpr rpc::Method<wire::FsckRequest, wire::FsckReply> kFsck{0x0423, "meta.fsck"};

}  // namespace ff::meta

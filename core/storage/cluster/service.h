// RPC methods of the cluster manager. Every manager offers them; all but the primary respond with
// `elsewhere` and the address of the primary. ManagerClient (manager_client.h) follows it.
#pragma once

#include "platform/rpc/method.h"
#include "storage/cluster/cluster.pb.h"

namespace ff::cluster {

inline constexpr rpc::Method<wire::HeartbeatRequest, wire::HeartbeatReply> kHeartbeat{
    0x0201, "cluster.heartbeat"};
// Changes since the version of the caller. Open to users.
inline constexpr rpc::Method<wire::RoutingRequest, wire::RoutingReply> kRouting{0x0202,
                                                                                "cluster.routing"};

// Capacity of the cluster. Open to users.
inline constexpr rpc::Method<wire::SpaceRequest, wire::SpaceReply> kSpace{0x0204, "cluster.space"};

// The routing of a node, when the manager requests it (HeartbeatReply::offer_wanted).
inline constexpr rpc::Method<wire::OfferRequest, wire::OfferReply> kOffer{0x0203, "cluster.offer"};

// Keys. The first is open to all clients of storage nodes.
inline constexpr rpc::Method<wire::TicketsRequest, wire::TicketsReply> kTickets{0x0205,
                                                                                "cluster.tickets"};
inline constexpr rpc::Method<wire::CreateKeyRequest, wire::CreateKeyReply> kCreateKey{
    0x0220, "cluster.create_key"};
inline constexpr rpc::Method<wire::RevokeKeyRequest, wire::KeysReply> kRevokeKey{
    0x0221, "cluster.revoke_key"};
inline constexpr rpc::Method<wire::RotateKeysRequest, wire::KeysReply> kRotateKeys{
    0x0222, "cluster.rotate_keys"};
inline constexpr rpc::Method<wire::ListKeysRequest, wire::KeysReply> kListKeys{0x0223,
                                                                               "cluster.list_keys"};

// Commands of the operator. The response is sent after the change is published. Errc::usage,
// refused or exists: not executed (manager.h); after other errors the outcome is open.
inline constexpr rpc::Method<wire::InitRequest, wire::CommandReply> kInit{0x0210, "cluster.init"};
inline constexpr rpc::Method<wire::StatusRequest, wire::StatusReply> kStatus{0x0211,
                                                                             "cluster.status"};
inline constexpr rpc::Method<wire::CreateChainsRequest, wire::CommandReply> kCreateChains{
    0x0212, "cluster.create_chains"};
inline constexpr rpc::Method<wire::SetTableRequest, wire::CommandReply> kSetTable{
    0x0213, "cluster.set_table"};
inline constexpr rpc::Method<wire::DrainRequest, wire::CommandReply> kDrain{0x0214,
                                                                            "cluster.drain"};
inline constexpr rpc::Method<wire::AcceptLossRequest, wire::CommandReply> kAcceptLoss{
    0x0215, "cluster.accept_loss"};
inline constexpr rpc::Method<wire::ReplaceTargetRequest, wire::CommandReply> kReplaceTarget{
    0x0216, "cluster.replace_target"};
inline constexpr rpc::Method<wire::AdoptRequest, wire::CommandReply> kAdopt{0x0217,
                                                                            "cluster.adopt"};
inline constexpr rpc::Method<wire::DropTargetRequest, wire::CommandReply> kDropTarget{
    0x0218, "cluster.drop_target"};

}  // namespace ff::cluster

// The cluster manager's methods. Every manager offers them; all but the primary answer with
// `elsewhere` and the primary's address. ManagerClient (manager_client.h) follows it.
#pragma once

#include "platform/rpc/method.h"
#include "storage/cluster/cluster.pb.h"

namespace ff::cluster {

inline constexpr rpc::Method<wire::HeartbeatRequest, wire::HeartbeatReply> kHeartbeat{
    0x0201, "cluster.heartbeat"};
// What has changed since the version that the caller holds. For users, too.
inline constexpr rpc::Method<wire::RoutingRequest, wire::RoutingReply> kRouting{0x0202,
                                                                                "cluster.routing"};

// How much room there is. For users, too.
inline constexpr rpc::Method<wire::SpaceRequest, wire::SpaceReply> kSpace{0x0204, "cluster.space"};

// What a node holds, when it is asked for it (HeartbeatReply::offer_wanted).
inline constexpr rpc::Method<wire::OfferRequest, wire::OfferReply> kOffer{0x0203, "cluster.offer"};

// The operator's. Their replies come once the change is published; Errc::usage, refused or exists:
// not done (manager.h); other errors leave it open.
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

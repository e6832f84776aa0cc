// The structs of cluster/ as messages of cluster.proto, and back. What comes from a peer or a disk
// is checked: numbers that name no state are Errc::corrupt, as is more than routing.h allows.
#pragma once

#include "platform/base/result.h"
#include "storage/cluster/cluster.pb.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/report.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

wire::Node to_wire(const Node& node);
wire::SetAside to_wire(const SetAside& aside);
wire::Chain to_wire(const Chain& chain);
wire::Table to_wire(const Table& table);
wire::Changes to_wire(const Changes& changes);
wire::HeartbeatRequest to_wire(const Heartbeat& beat);
wire::HeartbeatReply to_wire(const HeartbeatAnswer& answer);
wire::DiskUse to_wire(const DiskUse& use);
wire::Loss to_wire(const Loss& loss);
wire::LossPlan to_wire(const LossPlan& plan);

Result<Node> from_wire(const wire::Node& node);
SetAside from_wire(const wire::SetAside& aside);
Result<Chain> from_wire(const wire::Chain& chain);
Table from_wire(const wire::Table& table);
Result<Changes> from_wire(const wire::Changes& changes);
Result<Heartbeat> from_wire(const wire::HeartbeatRequest& beat);
Result<HeartbeatAnswer> from_wire(const wire::HeartbeatReply& answer);
DiskUse from_wire(const wire::DiskUse& use);
Loss from_wire(const wire::Loss& loss);

}  // namespace ff::cluster

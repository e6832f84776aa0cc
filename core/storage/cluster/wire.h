// Conversion between the structs of cluster/ and the messages of cluster.proto. Data from peers and
// disks is validated: an unknown state number, or more records than routing.h allows, is
// Errc::corrupt.
#pragma once

#include "platform/base/result.h"
#include "storage/cluster/cluster.pb.h"
#include "storage/cluster/heartbeat.h"
#include "storage/cluster/key_records.h"
#include "storage/cluster/manager.h"
#include "storage/cluster/routing.h"

namespace ff::cluster {

wire::Node to_wire(const NodeInfo& node);
wire::SetAside to_wire(const SetAside& aside);
wire::Chain to_wire(const Chain& chain);
wire::Table to_wire(const ChainTable& table);
wire::Changes to_wire(const RoutingDelta& changes);
wire::HeartbeatRequest to_wire(const Heartbeat& beat);
wire::HeartbeatReply to_wire(const HeartbeatResponse& answer);
wire::DiskUse to_wire(const DiskUsage& use);
wire::Loss to_wire(const DataLoss& loss);
wire::LossPlan to_wire(const DataLossPlan& plan);
wire::IssuedKey to_wire(const IssuedKey& key);
wire::KeyRecords to_wire(const KeyRecords& records);

Result<NodeInfo> from_wire(const wire::Node& node);
SetAside from_wire(const wire::SetAside& aside);
Result<Chain> from_wire(const wire::Chain& chain);
ChainTable from_wire(const wire::Table& table);
Result<RoutingDelta> from_wire(const wire::Changes& changes);
Result<Heartbeat> from_wire(const wire::HeartbeatRequest& beat);
Result<HeartbeatResponse> from_wire(const wire::HeartbeatReply& answer);
DiskUsage from_wire(const wire::DiskUse& use);
DataLoss from_wire(const wire::Loss& loss);
Result<KeyRecords> from_wire(const wire::KeyRecords& records);

}  // namespace ff::cluster

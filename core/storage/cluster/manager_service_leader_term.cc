// leader_term.cc: status and capacity for operators.
#include "storage/cluster/manager_service_leader_term.h"

#include "storage/cluster/cluster_space.h"
#include "storage/cluster/disk_utilization.h"
#include "storage/cluster/wire.h"

namespace ff::cluster {

namespace {

void add_node(const Manager& manager, NodeId id, int64_t now_ns, wire::StatusReply& reply) {
  wire::NodeStatus& node = *reply.add_nodes();
  node.set_id(id);
  node.set_alive(manager.alive(id, now_ns));
  const NodeStatus* const status = manager.node_status(id);
  if (status == nullptr) return;
  node.set_heard(true);
  node.set_silent_ms(static_cast<uint64_t>((now_ns - status->last_heartbeat_ns) / kMillisecond));
  node.set_routing_version(status->routing_version);
  node.set_restarts(status->restarts);
  node.set_process_ms(static_cast<uint64_t>((now_ns - status->generation_since_ns) / kMillisecond));
  for (const auto& [disk, use] : status->disks) *node.add_disks() = to_wire(use);
}

void add_target(const Manager& manager, const Chain& chain, const Target& target, int64_t now_ns,
                wire::StatusReply& reply) {
  const std::string why = manager.not_serving_reason(chain, target, now_ns);
  if (why.empty()) return;
  reply.set_targets_not_serving(reply.targets_not_serving() + 1);
  if (reply.targets_size() >= static_cast<int>(kStatusTargetsMax)) return;
  wire::TargetStatus& status = *reply.add_targets();
  status.set_chain(chain.id);
  status.set_target(target.id);
  status.set_why(why);
  const NodeStatus* const node = manager.node_status(target.node);
  if (node == nullptr || !node->targets.contains(target.id)) return;
  status.set_copied(node->targets.at(target.id).copied);
  status.set_to_copy(node->targets.at(target.id).to_copy);
}

}  // namespace

Error no_cluster() {
  Error error = fail(Errc::not_found, "the cluster is not initialized");
  error.hint = "Initialize it: ff admin init";
  return error;
}

wire::StatusReply ManagerService::LeaderTerm::status(int64_t now_ns) const {
  wire::StatusReply reply;
  reply.set_primary(lease.holder);
  reply.set_epoch(lease.epoch);
  reply.set_primary_ms(static_cast<uint64_t>((now_ns - since_ns) / kMillisecond));
  if (!manager) return reply;
  const Routing& routing = manager->routing();
  reply.set_cluster(routing.cluster);
  reply.set_routing_version(routing.version);
  if (manager->halted()) reply.set_halted(manager->halted()->message);
  for (const auto& [id, node] : routing.nodes) add_node(*manager, id, now_ns, reply);
  for (const auto& [id, chain] : routing.chains) {
    for (const Target& target : chain.targets) add_target(*manager, chain, target, now_ns, reply);
  }
  for (const DataLoss& loss : losses) *reply.add_losses() = to_wire(loss);
  return reply;
}

wire::SpaceReply ManagerService::LeaderTerm::space() const {
  wire::SpaceReply reply;
  if (!manager) return reply;
  const ClusterSpace space = cluster_space(*manager);
  reply.set_total(space.total);
  reply.set_free(space.free);
  for (const auto& [disk, percent] : disk_utilization(*manager)) {
    if (percent < kNearfullPercent) continue;
    wire::Place& place = *reply.add_nearly_full();
    place.set_node(disk.node);
    place.set_disk(disk.disk);
  }
  return reply;
}

}  // namespace ff::cluster

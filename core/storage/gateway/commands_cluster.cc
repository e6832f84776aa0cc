// CLUSTER: what clients in cluster mode ask for, so that they find the owner of a key without a
// detour.
#include <algorithm>
#include <string>
#include <vector>

#include "storage/gateway/cluster_map.h"
#include "storage/gateway/command_handlers.h"

namespace ff::gateway {

namespace {

void reply_slot_node(RespWriter& reply, const ClusterNode& node) {
  reply.array(4);
  reply.bulk(node.host);
  reply.integer(node.port);
  reply.bulk(node.id);
  reply.array(0);  // more about the network
}

void reply_shard_node(RespWriter& reply, const ClusterNode& node) {
  reply.map(7);
  reply.bulk("id");
  reply.bulk(node.id);
  reply.bulk("port");
  reply.integer(node.port);
  reply.bulk("ip");
  reply.bulk(node.host);
  reply.bulk("endpoint");
  reply.bulk(node.host);
  reply.bulk("role");
  reply.bulk("master");
  reply.bulk("replication-offset");
  reply.integer(0);
  reply.bulk("health");
  reply.bulk("online");
}

}  // namespace

Task<Result<void>> run_cluster_slots(CommandCall& call) {
  const auto nodes = cluster_nodes(call.view.access());
  size_t ranges = 0;
  for (const ClusterNode& node : nodes) ranges += node.slots.size();
  call.reply.array(ranges);
  for (const ClusterNode& node : nodes) {
    for (const ClusterNode::Slots& range : node.slots) {
      call.reply.array(3);
      call.reply.integer(range.first);
      call.reply.integer(range.last);
      reply_slot_node(call.reply, node);
    }
  }
  co_return Result<void>();
}

Task<Result<void>> run_cluster_shards(CommandCall& call) {
  const auto nodes = cluster_nodes(call.view.access());
  call.reply.array(nodes.size());
  for (const ClusterNode& node : nodes) {
    call.reply.map(2);
    call.reply.bulk("slots");
    call.reply.array(2 * node.slots.size());
    for (const ClusterNode::Slots& range : node.slots) {
      call.reply.integer(range.first);
      call.reply.integer(range.last);
    }
    call.reply.bulk("nodes");
    call.reply.array(1);
    reply_shard_node(call.reply, node);
  }
  co_return Result<void>();
}

Task<Result<void>> run_cluster_nodes(CommandCall& call) {
  std::string lines;
  for (const ClusterNode& node : cluster_nodes(call.view.access())) {
    lines += fmt::format("{} {}@{} {}master - 0 0 1 connected", node.id, node.address(), node.port,
                         node.is_own ? "myself," : "");
    for (const ClusterNode::Slots& range : node.slots) {
      lines += fmt::format(" {}-{}", range.first, range.last);
    }
    lines += '\n';
  }
  call.reply.verbatim(lines);
  co_return Result<void>();
}

Task<Result<void>> run_cluster_info(CommandCall& call) {
  const auto nodes = cluster_nodes(call.view.access());
  const uint32_t served = served_slots(call.view.access());
  const auto owners =
      std::ranges::count_if(nodes, [](const ClusterNode& node) { return !node.slots.empty(); });
  call.reply.verbatim(fmt::format(
      "cluster_state:{}\r\ncluster_slots_assigned:{}\r\ncluster_slots_ok:{}\r\n"
      "cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:{}\r\n"
      "cluster_size:{}\r\n",
      served == kvstore::kRedisSlots ? "ok" : "fail", served, served, nodes.size(), owners));
  co_return Result<void>();
}

Task<Result<void>> run_cluster_keyslot(CommandCall& call) {
  call.reply.integer(kvstore::redis_slot(call.word(2)));
  co_return Result<void>();
}

Task<Result<void>> run_cluster_myid(CommandCall& call) {
  call.reply.bulk(cluster_nodes(call.view.access()).front().id);
  co_return Result<void>();
}

}  // namespace ff::gateway

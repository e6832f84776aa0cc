// node_clients.cc: one client per node and shard, replaced when the process or the address of the
// node changes.
#include "storage/chain/node_clients.h"

#include <algorithm>
#include <utility>

#include "platform/net/address.h"
#include "storage/cluster/tickets.h"

namespace ff::chain {

NodeClients::NodeClients(rpc::ClientContext& context, const cluster::Routing& routing)
    : context_(context), routing_(routing), gate_(context.loop) {}

// A chain has one target on a node at most.
NodeClients::Shard NodeClients::shard_of(const cluster::NodeInfo& node, cluster::ChainId id) const {
  const cluster::Chain* const chain = routing_.chain(id);
  if (chain == nullptr) return std::nullopt;
  const auto target = std::ranges::find(chain->targets, node.id, &cluster::Target::node);
  if (target == chain->targets.end()) return std::nullopt;
  const auto disk = std::ranges::find(node.disks, target->disk, &cluster::DiskInfo::id);
  return disk == node.disks.end() ? std::nullopt : disk->shard;
}

Result<std::shared_ptr<rpc::Client>> NodeClients::client_of(cluster::NodeId id,
                                                            cluster::ChainId chain) {
  const cluster::NodeInfo* const node = routing_.node(id);
  if (node == nullptr || node->addresses.empty()) {
    return fail(Errc::stale, "no address of node {} is known", id);
  }
  auth::Keyring* const keyring = context_.transport.keyring();
  if (keyring != nullptr && keyring->root()) {
    // A manager makes its own tickets; others have them from a manager.
    const auto entity = cluster::entity_of(*node);
    if (entity) (void)keyring->needs_ticket(*entity, context_.loop.clock().wall_ns() / kSecond);
  }
  const Shard shard = shard_of(*node, chain);
  Connection& connection = connections_[{id, shard}];
  if (connection.generation != node->generation || connection.addresses != node->addresses ||
      connection.identity != node->identity) {
    retire(std::exchange(connection.client, nullptr));
    connection.generation = node->generation;
    connection.identity = node->identity;
    connection.addresses = node->addresses;
    connection.address_index = 0;
  }
  if (connection.client == nullptr) {
    FF_TRY(auto address, net::parse_address(connection.addresses[connection.address_index]));
    address.shard = shard;
    // Requests sent to another address of the node must not arrive after those sent to this one.
    if (connection.instance == nullptr)
      connection.instance = rpc::new_client_instance(context_.rng);
    connection.client = std::make_shared<rpc::Client>(
        context_, std::move(address), cluster::service_of(*node), connection.instance);
  }
  return connection.client;
}

void NodeClients::report_failure(cluster::NodeId id, const rpc::Client& client) {
  const auto found = std::ranges::find_if(connections_, [&](const auto& entry) {
    return entry.first.first == id && entry.second.client.get() == &client;
  });
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  if (connection.addresses.size() < 2) return;  // the RPC client itself reconnects
  retire(std::exchange(connection.client, nullptr));
  connection.address_index = (connection.address_index + 1) % connection.addresses.size();
}

void NodeClients::retire(std::shared_ptr<rpc::Client> client) {
  if (client == nullptr) return;
  gate_.spawn([](std::shared_ptr<rpc::Client> old) -> Task<void> {
    co_await old->close().shielded();
  }(std::move(client)));
}

Task<void> NodeClients::close() {
  for (auto& [id, connection] : connections_) retire(std::exchange(connection.client, nullptr));
  co_await gate_.wait_empty();
}

}  // namespace ff::chain

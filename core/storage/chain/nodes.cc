// nodes.cc: one client a node, a new one when the node's process or address is another.
#include "storage/chain/nodes.h"

#include <utility>

#include "platform/net/address.h"

namespace ff::chain {

Nodes::Nodes(rpc::ClientContext& context, const cluster::Routing& routing)
    : context_(context), routing_(routing), gate_(context.loop) {}

Result<std::shared_ptr<rpc::Client>> Nodes::at(cluster::NodeId id) {
  const cluster::Node* const node = routing_.node(id);
  if (node == nullptr || node->addresses.empty()) {
    return fail(Errc::stale, "node {} is at no address that is known here", id);
  }
  Known& known = known_[id];
  if (known.generation != node->generation || known.addresses != node->addresses) {
    retire(std::exchange(known.client, nullptr));
    known.generation = node->generation;
    known.addresses = node->addresses;
    known.at = 0;
  }
  if (known.client == nullptr) {
    FF_TRY(auto address, net::parse_address(known.addresses[known.at]));
    // What was sent to another of its addresses must not arrive after what is sent to this one.
    if (known.caller == nullptr) known.caller = rpc::new_caller(context_.rng);
    known.client = std::make_shared<rpc::Client>(context_, std::move(address), known.caller);
  }
  return known.client;
}

void Nodes::failed(cluster::NodeId id, const rpc::Client& client) {
  const auto found = known_.find(id);
  if (found == known_.end() || found->second.client.get() != &client) return;
  Known& known = found->second;
  if (known.addresses.size() < 2) return;  // the client itself tries again
  retire(std::exchange(known.client, nullptr));
  known.at = (known.at + 1) % known.addresses.size();
}

void Nodes::retire(std::shared_ptr<rpc::Client> client) {
  if (client == nullptr) return;
  gate_.spawn([](std::shared_ptr<rpc::Client> old) -> Task<void> {
    auto closing = old->close();
    co_await std::move(closing).shielded();
  }(std::move(client)));
}

Task<void> Nodes::close() {
  for (auto& [id, known] : known_) retire(std::exchange(known.client, nullptr));
  co_await gate_.wait_empty();
}

}  // namespace ff::chain

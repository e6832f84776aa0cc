// cluster_map.cc: partitions by their owners.
#include "storage/gateway/cluster_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "platform/base/text.h"
#include "storage/kvstore/record.h"

namespace ff::gateway {

namespace {

// Of one address always the same.
std::string node_id(std::string_view address) {
  const kvstore::KeyHash hash = kvstore::hash_key("node", address);
  return fmt::format("{:016x}{:016x}{:08x}", hash.high, hash.low,
                     static_cast<uint32_t>(hash.high >> 32 ^ hash.low));
}

// "10.0.0.1:6379" or "[::1]:6379".
ClusterNode make_node(std::string_view address) {
  ClusterNode node;
  node.id = node_id(address);
  const size_t colon = address.rfind(':');
  std::string_view host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  node.host = host;
  if (colon == address.npos) return node;
  node.port = static_cast<uint16_t>(parse_u64(address.substr(colon + 1)).value_or(0));
  return node;
}

}  // namespace

std::string ClusterNode::address() const { return fmt::format("{}:{}", host, port); }

std::vector<ClusterNode> cluster_nodes(const StoreAccess& access) {
  std::vector<ClusterNode> nodes;
  nodes.push_back(make_node(access.address));
  nodes.front().is_own = true;
  const kvstore::Store& store = access.store;
  for (uint32_t i = 0; i < store.partitions(); i++) {
    const std::string owner = store.owner(i);
    const std::string id = owner.empty() ? nodes.front().id : node_id(owner);
    auto node = std::ranges::find(nodes, id, &ClusterNode::id);
    if (node == nodes.end()) node = nodes.insert(nodes.end(), make_node(owner));
    const auto [first, last] = store.redis_slots(i);
    if (!node->slots.empty() && node->slots.back().last + 1 == first) {
      node->slots.back().last = last;
    } else {
      node->slots.push_back({.first = first, .last = last});
    }
  }
  return nodes;
}

// A former process with the address of this one serves nothing.
uint32_t served_slots(const StoreAccess& access) {
  uint32_t slots = 0;
  for (uint32_t i = 0; i < access.store.partitions(); i++) {
    const std::string owner = access.store.owner(i);
    if (owner.empty() || (owner == access.address && !access.store.owned(i))) continue;
    const auto [first, last] = access.store.redis_slots(i);
    slots += last - first + 1;
  }
  return slots;
}

}  // namespace ff::gateway

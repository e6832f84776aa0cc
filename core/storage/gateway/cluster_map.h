// Which gateway serves which slots, as clients of Redis Cluster see it: each owner of partitions is
// a node, and so is this gateway.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "storage/gateway/store_view.h"

namespace ff::gateway {

struct ClusterNode {
  struct Slots {
    uint32_t first = 0, last = 0;
  };
  std::string id = {};  // 40 digits, of the address
  std::string host = {};
  uint16_t port = 0;
  bool is_own = false;
  std::vector<Slots> slots = {};  // in order, not adjacent

  std::string address() const;
};

// This gateway first. It also stands for slots that nobody serves now: it lets commands wait for
// their next owner. Clients take a slot without a node for an error.
std::vector<ClusterNode> cluster_nodes(const StoreAccess& access);
// How many slots somebody serves.
uint32_t served_slots(const StoreAccess& access);

}  // namespace ff::gateway

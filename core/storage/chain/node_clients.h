// RPC clients of the storage nodes, at the addresses in the routing: one for each shard of a node.
// Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

class NodeClients {
 public:
  // Both arguments must outlive it. The routing may change.
  NodeClients(rpc::ClientContext& context, const cluster::Routing& routing);

  // Client for the target of the chain on this node: a connection to the shard that has it, at the
  // address of the node that worked last, or at the next one after a failure. Calls in flight keep
  // their client alive; calls to a process that has ended fail. Errors: stale (the routing has no
  // such node or no address of it).
  Result<std::shared_ptr<rpc::Client>> client_of(cluster::NodeId id, cluster::ChainId chain);
  // The node did not respond at that address: the next client_of() uses another address if there is
  // one.
  void report_failure(cluster::NodeId id, const rpc::Client& client);
  Task<void> close();

 private:
  // Of a node: nothing where it has no shards.
  using Shard = std::optional<uint32_t>;
  struct Connection {
    uint64_t generation = 0;
    std::string identity;  // of the key of the node
    std::vector<std::string> addresses;
    size_t address_index = 0;
    std::shared_ptr<rpc::ClientInstance> instance;
    std::shared_ptr<rpc::Client> client;
  };
  Shard shard_of(const cluster::NodeInfo& node, cluster::ChainId chain) const;
  void retire(std::shared_ptr<rpc::Client> client);

  rpc::ClientContext& context_;
  const cluster::Routing& routing_;
  std::map<std::pair<cluster::NodeId, Shard>, Connection> connections_;
  Gate gate_;
};

}  // namespace ff::chain

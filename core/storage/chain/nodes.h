// Clients of the storage nodes, by node, at the addresses that the routing tells. Owned by one
// loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "storage/cluster/routing.h"

namespace ff::chain {

class Nodes {
 public:
  // Both outlive it. The routing may change.
  Nodes(rpc::ClientContext& context, const cluster::Routing& routing);

  // The node's address that worked last, or the next one when that failed. Calls keep the client
  // while they are under way; those to a process that has ended fail. Errors: stale when the
  // routing has no such node, or no address of it.
  Result<std::shared_ptr<rpc::Client>> at(cluster::NodeId id);
  // The node did not answer at that address: the next at() gives another, if it has one.
  void failed(cluster::NodeId id, const rpc::Client& client);
  Task<void> close();

 private:
  struct Known {
    uint64_t generation = 0;
    std::vector<std::string> addresses;
    size_t at = 0;
    std::shared_ptr<rpc::Caller> caller;
    std::shared_ptr<rpc::Client> client;
  };
  void retire(std::shared_ptr<rpc::Client> client);

  rpc::ClientContext& context_;
  const cluster::Routing& routing_;
  std::map<cluster::NodeId, Known> known_;
  Gate gate_;
};

}  // namespace ff::chain

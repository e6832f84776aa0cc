// RPC service of all replicas of a storage node (methods of service.h): finds the target, transfers
// data, and limits the memory in use. Owned by one loop.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/rpc/method.h"
#include "platform/rpc/server_connection.h"
#include "storage/chain/memory_shares.h"
#include "storage/chain/replica.h"

namespace ff::chain {

class ReplicaService {
 public:
  // All arguments must outlive it.
  ReplicaService(rpc::Router& router, ReplicaContext& context);

  // Adds a target of `store`, which must outlive this service.
  void add(chunk::ChunkStore& store, cluster::TargetId id, cluster::ChainId chain);
  // Cancels its operations, removes it, and waits for the RPCs that use it. Set it unusable
  // (cluster::Member) first if its disk has failed.
  Task<void> remove(cluster::TargetId id);
  // Null: no such target.
  Replica* find(cluster::TargetId id);
  // Call when routing, lease or usable targets have changed.
  void on_routing_change();
  // The services of all shards of the node, in their order: calls for a target of another shard are
  // handed over to it. Clients that know the shard of a target connect to that one.
  void set_shards(std::vector<ReplicaService*> shards) { shards_ = std::move(shards); }
  // A client that has just had to wait because it holds its whole share of memory; empty: none.
  std::string held_back() const { return memory_shares_.held_back(10 * kSecond); }
  // Call at shutdown, when no RPC is running.
  Task<void> close();

 private:
  using ReplicaRef = std::shared_ptr<Replica>;  // RPCs in progress hold a reference
  template <class Request, class Reply>
  using Function = Task<Result<Reply>> (ReplicaService::*)(rpc::ServerCall&, Request);
  template <class Request, class Reply>
  void add_method(rpc::Router& router, rpc::Method<Request, Reply> method,
                  Function<Request, Reply> function, auth::Roles roles);
  template <class Request, class Reply>
  Task<Result<std::string>> serve(Function<Request, Reply> function, rpc::ServerCall& call,
                                  std::string message);
  ReplicaService& owner_of(const wire::Place& place);
  Result<ReplicaRef> find_replica(const wire::Place& place);
  Result<void> check_access(const rpc::ServerCall& call, const std::string& capability,
                            uint64_t inode, uint32_t right) const;
  // Memory for data in flight: of all, of all clients, and of this one.
  struct Memory {
    Semaphore::Permit own, clients, all;
  };
  Task<Result<Memory>> reserve_memory(const rpc::ServerCall& call, uint64_t bytes);
  Task<Result<wire::WriteReply>> write(rpc::ServerCall& call, wire::WriteRequest request);
  Task<Result<wire::WriteReply>> forward(rpc::ServerCall& call, wire::ForwardRequest request);
  Task<Result<wire::ReadReply>> read(rpc::ServerCall& call, wire::ReadRequest request);
  Task<Result<wire::ReadDone>> read_item(rpc::ServerCall& call, Replica& replica,
                                         const wire::Place& place, const wire::ReadItem& item);
  Task<Result<wire::SyncReply>> sync(rpc::ServerCall& call, wire::SyncRequest request);
  Task<Result<wire::LastReply>> last(rpc::ServerCall& call, wire::LastRequest request);
  Task<Result<wire::ChunksReply>> chunks(rpc::ServerCall& call, wire::ChunksRequest request);
  Task<Result<wire::InodesReply>> inodes(rpc::ServerCall& call, wire::InodesRequest request);
  Task<Result<wire::CommittedReply>> committed(rpc::ServerCall& call,
                                               wire::CommittedRequest request);
  Task<Result<wire::CompareReply>> compare(rpc::ServerCall& call, wire::CompareRequest request);
  Task<Result<wire::AbsentReply>> absent(rpc::ServerCall& call, wire::AbsentRequest request);
  Task<Result<wire::Done>> repair(rpc::ServerCall& call, wire::RepairRequest request);
  Task<Result<wire::ListReply>> list(rpc::ServerCall& call, wire::ListRequest request);
  Task<Result<wire::Done>> erase(rpc::ServerCall& call, wire::EraseRequest request);
  Task<Result<wire::Done>> copy(rpc::ServerCall& call, wire::CopyRequest request);
  Task<Result<wire::Done>> results(rpc::ServerCall& call, wire::ResultsRequest request);
  Task<Result<wire::Done>> copied(rpc::ServerCall& call, wire::CopiedRequest request);

  ReplicaContext& context_;
  Counter& handovers_;
  std::vector<ReplicaService*> shards_;  // empty: there is only this one
  std::map<cluster::TargetId, ReplicaRef> replicas_;
  const uint64_t memory_bytes_;
  Semaphore memory_;
  Semaphore client_memory_;
  MemoryShares memory_shares_;
  Gate handed_over_;  // calls that came from other shards
};

}  // namespace ff::chain

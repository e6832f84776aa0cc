// A load generator that continuously writes, reads and syncs some chunks of every chain from
// several tasks, and records the results. Runs in the scenario of chain/ on virtual time, and in
// tests of real daemons on real time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/scenario/chain_history.h"
#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "storage/chain/buffer_pool.h"
#include "storage/chain/chain_client.h"
#include "storage/cluster/routing_cache.h"

namespace ff::scenario::chain_parts {

class ChainLoad {
 public:
  // `report_violation`: called for violations that the history does not detect; `arena`: read
  // buffers that nodes can access. All arguments must outlive it.
  ChainLoad(rpc::ClientContext& context, const std::vector<net::Address>& managers,
            History& history, std::function<void(std::string)> report_violation,
            ByteSpan arena = {});
  ~ChainLoad();
  // From now on only reads.
  void stop_writing() { writing_ = false; }
  bool writes_under_way() const { return writes_ > 0; }
  Task<void> close();

 private:
  Task<void> work(bool writes);
  Task<void> write(cluster::ChainId chain, chunk::ChunkId id);
  Task<void> remove(cluster::ChainId chain, chunk::ChunkId id);
  void check_failure(const Error& error);
  Task<void> read(cluster::ChainId chain, chunk::ChunkId id);
  Task<void> sync(cluster::ChainId chain);

  rpc::ClientContext& context_;
  History& history_;
  const std::function<void(std::string)> report_violation_;
  chain::BufferPool memory_;
  cluster::RoutingCache routing_;
  chain::ChainClient client_;
  bool writing_ = true;
  int writes_ = 0;
  Gate gate_;
};

}  // namespace ff::scenario::chain_parts

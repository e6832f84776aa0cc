// A program that writes, reads and syncs a few chunks of every chain all the time, from several
// tasks, and notes what comes of it. In the story of chain/ on virtual time, in tests of real
// daemons on the machine's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/scenario/chain_history.h"
#include "platform/base/gate.h"
#include "platform/rpc/client.h"
#include "storage/chain/client.h"
#include "storage/chain/memory.h"
#include "storage/cluster/routing_copy.h"

namespace ff::scenario::chain_parts {

class ChainLoad {
 public:
  // `broken`: told what must not be, beside the history's own; `arena`: memory for what is read,
  // which nodes may reach. All outlive it.
  ChainLoad(rpc::ClientContext& context, const std::vector<net::Address>& managers,
            History& history, std::function<void(std::string)> broken, ByteSpan arena = {});
  ~ChainLoad();
  // No more changes, only reads.
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
  const std::function<void(std::string)> broken_;
  chain::Memory memory_;
  cluster::RoutingCopy routing_;
  chain::Client client_;
  bool writing_ = true;
  int writes_ = 0;
  Gate gate_;
};

}  // namespace ff::scenario::chain_parts

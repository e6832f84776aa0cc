// Reads with a snapshot over connections of its own to the storage nodes. Owned by one loop.
#pragma once

#include <functional>

#include "storage/chain/chain_client.h"
#include "storage/client/read_snapshot.h"

namespace ff::client {

class ChainReader final : public SnapshotReader {
 public:
  // `context` outlives it. `refresh` is called when the routing seems outdated, on the loop of the
  // context.
  ChainReader(rpc::ClientContext& context, std::function<void()> refresh)
      : loop_(context.loop), storage_(context, routing_, std::move(refresh)) {}

  Task<Answer> read(ReadSnapshotRef snapshot, uint64_t offset, ByteSpan into) override;
  void set_routing(const cluster::Routing& routing) override;
  Task<void> close() override { return storage_.close(); }

 private:
  Loop& loop_;
  cluster::Routing routing_;
  chain::ChainClient storage_;
};

}  // namespace ff::client

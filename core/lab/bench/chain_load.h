// The load of `ff bench chain`: chunks in the chains of a running cluster, compared with a local
// file of the same size (disk_passes.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lab/bench/disk_passes.h"
#include "platform/base/gate.h"
#include "platform/base/progress.h"
#include "platform/base/stop_token.h"
#include "platform/rpc/client.h"
#include "storage/chain/chain_client.h"
#include "storage/cluster/routing_cache.h"

namespace ff::bench {

// A client of the cluster that stores chunks under an inode number that no file uses.
class ChainBenchTarget final : public BenchTarget {
 public:
  ChainBenchTarget(rpc::ClientContext& context, const std::vector<net::Address>& managers);
  // Uses the chains of the newest version of a table. Errors: Errc::not_found, those of the
  // managers.
  Task<Result<void>> open(cluster::TableId table, int64_t deadline_ns);
  Task<void> close();
  size_t chains() const { return chains_.size(); }
  // Replicas per chain when all targets serve.
  size_t replicas() const { return replicas_; }

  Task<Result<void>> write(uint64_t index, ByteView from) override;
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override;
  Task<Result<void>> overwrite(uint64_t index, uint64_t offset, ByteView from) override;
  // Fails if a chain has lost updates since they were written.
  Task<Result<void>> sync() override;
  // Removes the first `count` chunks.
  Task<Result<void>> remove(uint64_t count);

 private:
  cluster::ChainId chain_of(uint64_t index) const { return chains_[index % chains_.size()]; }
  Task<Result<void>> update(uint64_t index, chunk::Update update);

  rpc::ClientContext& context_;
  const uint64_t inode_;
  cluster::RoutingCache routing_;
  chain::ChainClient client_;
  std::vector<cluster::ChainId> chains_;
  size_t replicas_ = 0;
  std::map<cluster::ChainId, uint64_t> verifiers_;  // verifiers of the updates
  Gate gate_;
};

// A continuous load that measures how long operations wait during failures of the cluster.
struct HoldLoad {
  int64_t duration_ns = 0;
  uint64_t chunks = 0;
  unsigned depth = 8;  // updates in flight, and reads in flight, of whole chunks
};
struct HoldResult {
  uint64_t updates = 0;
  uint64_t reads = 0;
  uint64_t errors = 0;
  std::string first_error = {};
  double p50_seconds = 0;
  double p99_seconds = 0;
  double longest_seconds = 0;  // longest wait of one operation
};
// Writes all chunks first. `memory`: one chunk per operation in flight.
Task<Result<HoldResult>> run_hold(ChainBenchTarget& chains, rpc::ClientContext& context,
                                  const StopToken& stop, Progress& progress, const HoldLoad& load,
                                  ByteSpan memory);

}  // namespace ff::bench

// The work of `ff bench chain`: chunks in the chains of a cluster that runs, beside a file of the
// same size (disk_passes.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lab/bench/disk_passes.h"
#include "platform/base/gate.h"
#include "platform/base/progress.h"
#include "platform/base/stop.h"
#include "platform/rpc/client.h"
#include "storage/chain/client.h"
#include "storage/cluster/routing_copy.h"

namespace ff::bench {

// A program of the cluster, with an inode of its own that no file has.
class ChainSubject final : public Subject {
 public:
  ChainSubject(rpc::ClientContext& context, const std::vector<net::Address>& managers);
  // Takes the chains of the newest version of a table. Errors: not_found (there is none), those of
  // the managers.
  Task<Result<void>> open(cluster::TableId table, int64_t deadline_ns);
  Task<void> close();
  size_t chains() const { return chains_.size(); }
  // Of the chains, when all serve.
  size_t replicas() const { return replicas_; }

  Task<Result<void>> write(uint64_t index, ByteView from) override;
  Task<Result<void>> read(uint64_t index, uint64_t offset, ByteSpan into) override;
  // Fails when a chain has lost updates since they were written.
  Task<Result<void>> sync() override;
  // The first `count` chunks.
  Task<Result<void>> remove(uint64_t count);

 private:
  cluster::ChainId chain_of(uint64_t index) const { return chains_[index % chains_.size()]; }

  rpc::ClientContext& context_;
  const uint64_t inode_;
  cluster::RoutingCopy routing_;
  chain::Client client_;
  std::vector<cluster::ChainId> chains_;
  size_t replicas_ = 0;
  std::map<cluster::ChainId, uint64_t> verifiers_;  // of the chains' updates
  Gate gate_;
};

// Programs that go on whatever befalls the cluster.
struct HoldLoad {
  int64_t duration_ns = 0;
  uint64_t chunks = 0;
  unsigned depth = 8;  // updates and reads in flight, of whole chunks, as many of each
};
struct HoldFigures {
  uint64_t updates = 0;
  uint64_t reads = 0;
  uint64_t errors = 0;
  std::string first_error = {};
  double p50_seconds = 0;
  double p99_seconds = 0;
  double longest_seconds = 0;  // that one of them has waited
};
// `memory`: a chunk for each in flight. Writes all chunks first.
Task<Result<HoldFigures>> run_hold(ChainSubject& chains, rpc::ClientContext& context,
                                   const Stop& stop, Progress& progress, const HoldLoad& load,
                                   ByteSpan memory);

}  // namespace ff::bench

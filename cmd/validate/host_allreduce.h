// Ranks of collective operations on this host for the checks of a node (validate/allreduce_rank.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "ops/validate/allreduce_rank.h"
#include "training/collective/communicator.h"

namespace ff::cmd {

class HostAllreduceRank final : public validate::AllreduceRank {
 public:
  explicit HostAllreduceRank(std::unique_ptr<collective::Communicator> ranks)
      : ranks_(std::move(ranks)) {}

  Result<ByteSpan> allocate(size_t bytes) override { return ranks_->allocate(bytes); }
  Result<void> barrier() override { return ranks_->run({.kind = collective::Collective::barrier}); }
  Result<void> allreduce(const float* in, float* out, size_t count) override {
    return ranks_->run({.count = count, .in = in, .out = out});
  }

 private:
  std::unique_ptr<collective::Communicator> ranks_;
};

inline validate::AllreduceRanks host_allreduce_ranks() {
  const auto join = [](uint32_t rank, uint32_t ranks, const std::string& job,
                       const StopToken& stop) -> Result<std::unique_ptr<validate::AllreduceRank>> {
    // The check has pinned its threads already.
    FF_TRY(auto joined, collective::Communicator::join({.rank = rank, .ranks = ranks, .job = job},
                                                       stop, {.pin = false}));
    std::unique_ptr<validate::AllreduceRank> rank_of_job =
        std::make_unique<HostAllreduceRank>(std::move(joined));
    return rank_of_job;
  };
  return {.max = collective::kHostRanksMax, .join = join};
}

}  // namespace ff::cmd

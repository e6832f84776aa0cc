// The parts of `ff allreduce`, one file each, and its ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cmd/cli.h"
#include "reduce/communicator.h"

namespace ff::cmd {

void declare_allreduce_bench(Command& bench);
void declare_allreduce_run(Command& run);

// The words of --datatype and --op.
std::vector<std::string> data_type_names();
std::vector<std::string> reduce_op_names();

// What all of them can be told of how ranks work.
struct RankOptions {
  int64_t deadline_ns = 60 * kSecond;  // for each operation
  std::optional<std::string> simd;
};
void declare_rank_options(Command& command, RankOptions& options);

// Runs `body` as each of so many ranks, in processes of their own; what rank 0 prints is what the
// command prints. The error is the first rank's that has one; a rank that is killed is named.
Result<void> with_local_ranks(Session& session, uint32_t ranks, const RankOptions& options,
                              const std::function<Result<void>(reduce::Communicator&)>& body);

}  // namespace ff::cmd

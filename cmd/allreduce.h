// The parts of `ff allreduce`, one file each, and its ranks.
#pragma once

#include <functional>

#include "cmd/cli.h"
#include "reduce/communicator.h"

namespace ff::cmd {

void declare_allreduce_bench(Command& bench);

// Runs `body` as each of so many ranks, in processes of their own; what rank 0 prints is what the
// command prints. The error is the first rank's that has one; a rank that is killed is named.
Result<void> with_local_ranks(Session& session, uint32_t ranks, const reduce::Options& options,
                              const std::function<Result<void>(reduce::Communicator&)>& body);

}  // namespace ff::cmd

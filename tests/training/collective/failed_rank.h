// A job of one or several nodes in which one rank dies or hangs: the errors of the others. Each
// rank is a process.
#pragma once

#include <csignal>
#include <cstdio>

#include "training/collective/multi_node.h"

namespace ff::collective {

constexpr int kFailedAsExpected = 7;

// What the ranks do meanwhile.
struct OperationLoad {
  uint64_t count = 1 << 18;  // elements
  uint64_t max_rounds = 20;  // complete operations of the victim
};

// Runs operations until one fails; kFailedAsExpected: with this code, and a message that names
// `victim`.
inline int run_until_error(Communicator& ranks, Errc code, uint32_t victim,
                           const OperationLoad& load) {
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  for (;;) {
    const auto run = ranks.run({.count = load.count, .in = memory.data(), .out = memory.data()});
    if (run) continue;
    const bool right = run.error().code == code &&
                       contains(run.error().message, fmt::format("rank {} (process", victim));
    if (!right) std::fprintf(stderr, "rank %u: %s\n", ranks.rank(), run.error().message.c_str());
    return right ? kFailedAsExpected : 1;
  }
}

// Runs some operations, then sends itself the signal while one is in flight.
inline int run_until_signal(Communicator& ranks, uint64_t seed, int signal,
                            const OperationLoad& load) {
  SeededRng rng(seed);
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  const Operation operation{.count = load.count, .in = memory.data(), .out = memory.data()};
  // At least one, so that all ranks have joined.
  for (uint64_t left = 1 + rng.below(load.max_rounds); left > 0; left--) {
    if (!ranks.run(operation)) return 1;
  }
  if (rng.below(2) == 0 && !ranks.start(operation)) return 1;
  (void)::kill(::getpid(), signal);
  return 2;  // the signal did not end this process
}

// `victim` gets the signal while operations are in flight; all other ranks must fail as expected.
inline void fail_rank(const Nodes& nodes, uint32_t victim, int signal, Errc code,
                      const OperationLoad& load = {}) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<pid_t> pids;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      const auto body = [&](Communicator& ranks) {
        if (ranks.rank() == victim) return run_until_signal(ranks, seed, signal, load);
        return run_until_error(ranks, code, victim, load);
      };
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
    }
  }
  for (uint32_t rank = 0; rank < pids.size(); rank++) {
    if (rank == victim) continue;
    EXPECT_EQ(exit_of(pids[rank]), kFailedAsExpected) << "rank " << rank;
  }
  (void)::kill(pids[victim], SIGKILL);
  EXPECT_EQ(exit_of(pids[victim]), 128 + SIGKILL);
}

}  // namespace ff::collective

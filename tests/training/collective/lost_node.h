// A job of one or several nodes, of which one rank dies or stops: what the others are told. Each
// rank is a process.
#pragma once

#include <csignal>
#include <cstdio>

#include "training/collective/nodes.h"

namespace ff::collective {

constexpr int kToldRight = 7;

// What the ranks are at meanwhile.
struct Operations {
  uint64_t count = 1 << 18;  // elements
  uint64_t most = 20;        // that the victim takes part in, before the last
};

// Runs operations until one fails; kToldRight: with this code, and a message that names `who`.
inline int until_told(Communicator& ranks, Errc code, uint32_t who, const Operations& operations) {
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  for (;;) {
    const auto run =
        ranks.run({.count = operations.count, .in = memory.data(), .out = memory.data()});
    if (run) continue;
    const bool right = run.error().code == code &&
                       contains(run.error().message, fmt::format("rank {} (process", who));
    if (!right) std::fprintf(stderr, "rank %u: %s\n", ranks.rank(), run.error().message.c_str());
    return right ? kToldRight : 1;
  }
}

// Runs some operations, then gets the signal while one is under way.
inline int until_signalled(Communicator& ranks, uint64_t seed, int signal,
                           const Operations& operations) {
  SeededRng rng(seed);
  const ByteSpan memory = ranks.allocate(4 << 20).value();
  const Operation operation{.count = operations.count, .in = memory.data(), .out = memory.data()};
  for (uint64_t left = rng.below(operations.most); left > 0; left--) {
    if (!ranks.run(operation)) return 1;
  }
  if (rng.below(2) == 0 && !ranks.start(operation)) return 1;
  (void)::kill(::getpid(), signal);
  return 2;  // it was let go on
}

// `victim` gets the signal while operations are under way; the others end once they were told.
inline void lose_rank(const Nodes& nodes, uint32_t victim, int signal, Errc code,
                      const Operations& operations = {}) {
  const uint64_t seed = system_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<pid_t> pids;
  for (uint32_t node = 0; node < nodes.ranks.size(); node++) {
    for (uint32_t local = 0; local < nodes.ranks[node]; local++) {
      const auto body = [&](Communicator& ranks) {
        if (ranks.rank() == victim) return until_signalled(ranks, seed, signal, operations);
        return until_told(ranks, code, victim, operations);
      };
      pids.push_back(fork_rank(nodes.rank(node, local), nodes.options, body, nodes.network(node)));
    }
  }
  for (uint32_t rank = 0; rank < pids.size(); rank++) {
    if (rank == victim) continue;
    EXPECT_EQ(exit_of(pids[rank]), kToldRight) << "rank " << rank;
  }
  (void)::kill(pids[victim], SIGKILL);
  EXPECT_EQ(exit_of(pids[victim]), 128 + SIGKILL);
}

}  // namespace ff::collective

// The scenario of cluster/: three managers on one store, and four nodes whose targets hold no data.
// Managers and nodes are killed, paused and partitioned from each other and from the store (also
// one-way); clocks drift; disks fail; an operator drains nodes and targets. The oracle
// (cluster_oracle.h) checks every few milliseconds:
//
// - There is at most one primary; epochs, routing and chain versions never decrease.
// - A chain always keeps a serving or lastsrv target, and satisfies broken_invariant().
// - A target that serves on its node is in the stored chain: it stops before a chain without it is
//   published. No two nodes act as head of one chain.
// - Every target that answers reads has every acknowledged write.
// - After the faults are healed, every target serves again.
#pragma once

#include "lab/scenario/scenario.h"

namespace ff::scenario {

Result<ScenarioResult> run_cluster(uint64_t seed);

}  // namespace ff::scenario

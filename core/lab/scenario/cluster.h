// The story of cluster/: three managers on one store and four nodes whose targets hold no data.
// Managers and nodes are killed, paused, cut off from each other, from the store, one way too;
// their clocks drift; disks fail; an operator drains what stands. The truth (cluster_truth.h) is
// looked at every few milliseconds:
//
// - never two primaries at a time; epochs, routing and chain versions never fall;
// - a chain always keeps a serving or lastsrv target, and all else of broken_invariant();
// - a target that its node lets serve is in its chain as stored: it has stopped before a chain
//   without it is published; no two nodes believe to be a chain's head;
// - every target that answers reads holds every write that was acknowledged;
// - once all is healed every target serves again.
#pragma once

#include "lab/scenario/story.h"

namespace ff::scenario {

Result<Outcome> run_cluster(uint64_t seed);

}  // namespace ff::scenario

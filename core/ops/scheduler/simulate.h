// A cluster on paper: the decision of decide.h over a trace, on a clock that jumps from event to
// event. What a real cluster does is here a few numbers: how long saving and loading take, how
// often tasks save by themselves, and which of them answer when they are asked to stop.
#pragma once

#include <cstdint>

#include "ops/scheduler/trace.h"
#include "platform/base/clock.h"
#include "platform/base/stop.h"

namespace ff::scheduler {

struct SimulatedCluster {
  uint32_t nodes = 1250;
  uint32_t zones = 2;
  uint32_t leaf_nodes = 32;                     // nodes of a leaf
  int64_t pass_every_ns = kSecond;              // decisions are made no more often
  int64_t save_ns = 30 * kSecond;               // from the request to stop until the nodes are free
  int64_t load_ns = 60 * kSecond;               // before an interrupted task goes on
  int64_t checkpoint_every_ns = 300 * kSecond;  // of tasks that do not answer
  double answering = 1.0;                       // share of tasks that save when asked to
};

struct SimulatedRun {
  uint64_t passes = 0;
  double pass_ms_p50 = 0, pass_ms_p99 = 0, pass_ms_max = 0;  // real time of a decision
  double utilisation = 0;                 // of all nodes, at work, while any task waited
  double overhead = 0;                    // the same, saving and loading
  double wait_s_p50 = 0, wait_s_p99 = 0;  // from submission to the first start
  uint64_t finished = 0;
  uint64_t never = 0;  // larger than the cluster
  uint64_t preemptions = 0;
  double lost_node_hours = 0;
  double greedy_gap = 0;  // of what greedy choices lost, the share that a better one may have saved
  double hours = 0;       // until the last has finished
};

// `clock` measures the decisions. Errc::interrupted.
Result<SimulatedRun> simulate(const SimulatedCluster& cluster, const Trace& trace, uint64_t seed,
                              Clock& clock, const Stop& stop);

}  // namespace ff::scheduler

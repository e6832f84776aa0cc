// Simulates the scheduler (decide.h) on a trace, with a clock that jumps from event to event. The
// real cluster is reduced to a few numbers: how long saving and loading take, how often tasks save
// on their own, and which tasks acknowledge a request to stop.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/scheduler/trace.h"
#include "platform/base/clock.h"
#include "platform/base/stop_token.h"

namespace ff::scheduler {

struct SimulatedCluster {
  uint32_t nodes = 1250;
  uint32_t zones = 2;
  uint32_t leaf_nodes = 32;                     // nodes of a leaf switch
  int64_t pass_every_ns = kSecond;              // minimum time between two passes
  int64_t save_ns = 30 * kSecond;               // from the request to stop until the nodes are free
  int64_t load_ns = 60 * kSecond;               // before a preempted task continues
  int64_t checkpoint_every_ns = 300 * kSecond;  // of tasks that do not acknowledge
  double answering = 1.0;                       // share of tasks that save when asked to stop
};

struct SimulationResult {
  uint64_t passes = 0;
  double pass_ms_p50 = 0, pass_ms_p99 = 0, pass_ms_max = 0;  // real time of a decision
  double utilization = 0;                 // share of all nodes that work, while any task waits
  double overhead = 0;                    // the same, for saving and loading
  double wait_s_p50 = 0, wait_s_p99 = 0;  // from submission to the first start
  uint64_t wide = 0;                      // started tasks that need more nodes than a zone has
  double wide_wait_s_p50 = 0;             // of these
  std::vector<double> waits_s;            // of each task of the trace; below 0: it never started
  uint64_t finished = 0;
  uint64_t never = 0;  // tasks larger than the cluster
  uint64_t preemptions = 0;
  double lost_node_hours = 0;
  double greedy_gap = 0;  // share of the loss of greedy choices that a better one may avoid
  double hours = 0;       // until the last task has finished
};

// `clock` measures the passes. Errc::interrupted.
Result<SimulationResult> simulate(const SimulatedCluster& cluster, const Trace& trace,
                                  uint64_t seed, Clock& clock, const StopToken& stop);

}  // namespace ff::scheduler

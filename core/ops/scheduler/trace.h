// Traces: the input of a simulation, from one of three sources:
//
//   the Standard Workload Format (Feitelson's parallel workloads archive, version 2.2): 18 numbers
//       a line, ';' begins a comment; used are submission, run time, processors and time requested,
//       user and queue
//   JSON lines: {"submit_s": 0, "nodes": 4, "run_s": 3600, "limit_s": 7200, "priority": 30,
//       "user": "ada"}; nodes and run_s are required
//   synthetic, from a seed: gangs of 1 to an eighth of the nodes, minutes to a day long
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/scheduler/cluster_snapshot.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"

namespace ff::scheduler {

struct TraceTask {
  int64_t submit_ns = 0;
  int64_t run_ns = 0;    // of work, without the cost of preemptions
  int64_t limit_ns = 0;  // requested by the user; 0: none
  uint32_t nodes = 1;
  uint32_t user = 0;
  PriorityLevel level = kDefaultLevel;
};

struct Trace {
  std::vector<TraceTask> tasks;  // by time of submission
  uint64_t left_out = 0;         // tasks that never ran or have no size
};

// Errc::usage: names the malformed line. Processors are rounded up to whole nodes.
Result<Trace> parse_swf(std::string_view text, uint32_t processors_per_node);
Result<Trace> parse_trace_lines(std::string_view text);
// All tasks are submitted at time 0.
Trace synthetic_trace(Rng& rng, uint64_t tasks, uint32_t nodes);

}  // namespace ff::scheduler

// Traces: the tasks that a simulation is given. Three sources:
//
//   the Standard Workload Format (Feitelson's parallel workloads archive, version 2.2): 18 numbers
//   a
//       line, ';' begins a comment; of them the submission, the run time, the processors and the
//       time asked for, the user and the queue are used
//   JSON lines: {"submit_s": 0, "nodes": 4, "run_s": 3600, "limit_s": 7200, "priority": 30,
//       "user": "ada"}; nodes and run_s must be there
//   made up from a seed: gangs of 1 to an eighth of the nodes, minutes to a day long
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/scheduler/picture.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"

namespace ff::scheduler {

struct TraceTask {
  int64_t submit_ns = 0;
  int64_t run_ns = 0;    // of work, without what interruptions cost
  int64_t limit_ns = 0;  // that its user gave; 0: none
  uint32_t nodes = 1;
  uint32_t user = 0;
  Level level = kUsualLevel;
};

struct Trace {
  std::vector<TraceTask> tasks;  // by time of submission
  uint64_t left_out = 0;         // lines of tasks that never ran, or have no size
};

// Errc::usage names the line that is not understood. Processors are rounded up to nodes of so many.
Result<Trace> parse_swf(std::string_view text, uint32_t processors_per_node);
Result<Trace> parse_trace_lines(std::string_view text);
// All are there at time 0.
Trace made_up_trace(Rng& rng, uint64_t tasks, uint32_t nodes);

}  // namespace ff::scheduler

// A scheduling pass: which tasks start, which are preempted, and why the others wait. A pure
// function of the snapshot and the time. The caller applies the decision, and calls again when
// something has changed.
//
// Waiting tasks are considered by priority level, then in order of submission. A task that fits
// starts. If it would fit after preemption of tasks of lower levels, these are asked to stop, and
// their nodes are kept for it. The first task of a partition that must wait longer gets a
// reservation: the nodes that it will have, and the latest time from which they are free. Later
// tasks may use these nodes meanwhile only if they end before that time, or if they are of a lower
// level and can be preempted at once (EASY backfill, Lifka 1995, with the reservation on nodes).
//
// Placement: on as few leaves as possible, within one zone. Only a task that is wider than any zone
// spans zones, and at most one at a time; its nodes are ordered so that only one pair of neighbours
// communicates across zones (Fire-Flyer paper, III-B). Such a task waits in its turn like any
// other: it preempts a task of a lower level that spans zones, and its reservation also keeps later
// tasks from spanning them.
//
// Victims are compared by, in this order: lower level; fewer node-seconds lost since the last save;
// fewer gangs; fewer nodes freed in excess; later start. With up to kExactMax candidates the best
// set is found, with more a greedy choice is made.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/scheduler/cluster_snapshot.h"

namespace ff::scheduler {

struct TaskStart {
  uint32_t task = 0;                 // index into ClusterSnapshot::tasks, here and below
  PriorityLevel level = 0;           // whose quota is charged
  std::vector<uint32_t> nodes = {};  // in the order of ranks
};

struct Preemption {
  uint32_t task = 0;
  uint32_t for_task = 0;
};

enum class WaitReason : uint8_t {
  begin_time,         // the earliest start is in the future
  quota,              // the quota of the user at its level is exhausted
  unsatisfiable,      // the cluster has fewer such nodes
  nodes_unavailable,  // too few of them report and are in service
  releasing,          // preempted tasks are freeing its nodes
  zone_span,          // it needs two zones, and another task spans zones or is to span them
  resources,          // it is the first of its partition, and nodes are in use
  priority,           // it must not delay the first task of its partition
};
std::string_view wait_reason_name(WaitReason reason);

struct TaskWait {
  uint32_t task = 0;
  WaitReason reason = WaitReason::priority;
  uint32_t other = kNoIndex;           // the task it waits behind, or that spans zones
  int64_t expected_ns = kNever;        // estimate of the latest start
  uint32_t missing = 0;                // nodes: over quota, not existing, or in use
  std::optional<uint32_t> quota = {};  // the exhausted quota, in nodes; of several the largest
};

struct SchedulingDecision {
  std::vector<TaskStart> starts;
  std::vector<Preemption> preemptions;
  std::vector<TaskWait> waits;
  // Node-nanoseconds of work that the victims lose. For greedy choices also a lower bound of what
  // any choice loses (0 where the choice was exact).
  int64_t lost_ns = 0;
  int64_t greedy_lost_ns = 0, greedy_bound_ns = 0;
};

SchedulingDecision decide(const ClusterSnapshot& snapshot, int64_t now_ns);

}  // namespace ff::scheduler

// The decision: who starts, who is asked to stop for whom, and why the others wait. A pure function
// of the picture and the time; whoever calls it carries the outcome out, and calls it again when
// something has changed.
//
// Waiting tasks are looked at by level, then in their order. One that fits starts. One that would
// fit once tasks of lower levels are interrupted has them asked to stop, and the nodes are kept for
// it until they have. The first of a group that must wait longer gets a reservation: the nodes it
// will have, and from when at the latest. Later ones may use those nodes meanwhile only if they end
// before, or if they are of a lower level and can be interrupted at once (backfill after EASY,
// Lifka 1995, with the reservation on nodes).
//
// Where: on as few leaves as possible, in one zone; at most one task at a time spans zones, and its
// nodes are in such an order that one pair of neighbours talks across (paper III-B).
//
// Victims, the first difference decides: lower level; fewer node-seconds lost since the last save;
// fewer gangs; fewer nodes freed in vain; later start. With up to kExactMax candidates the best set
// is found, otherwise one that a greedy choice gives.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/scheduler/picture.h"

namespace ff::scheduler {

struct Start {
  uint32_t task = 0;                 // index into Picture::tasks, here and below
  Level level = 0;                   // that is charged
  std::vector<uint32_t> nodes = {};  // in the order of ranks
};

struct Interrupt {
  uint32_t task = 0;
  uint32_t for_task = 0;
};

enum class Why : uint8_t {
  not_yet,    // the time to start it has not come
  no_quota,   // the user may not hold so many nodes more at its level
  never,      // there are not so many such nodes in all
  nodes_out,  // not so many of them are alive and in service
  stopping,   // its nodes are being freed
  zones,      // it needs two zones, and another task spans zones
  first,      // it is the first of its group, and the nodes are in use
  behind,     // it must not delay the first of its group
};
std::string_view why_name(Why why);

struct Wait {
  uint32_t task = 0;
  Why why = Why::behind;
  uint32_t other = kNobody;      // the task it is behind; that spans zones
  int64_t expected_ns = kNever;  // when it starts at the latest, as far as one can tell
  uint32_t missing = 0;          // nodes: beyond its quota, that are not there, that are in use
};

struct Decision {
  std::vector<Start> starts;
  std::vector<Interrupt> interrupts;
  std::vector<Wait> waits;
  // Of the victims: node-nanoseconds that are lost, and the least that could be where the choice
  // was greedy (a bound from below; 0 where it was exact).
  int64_t lost_ns = 0;
  int64_t greedy_lost_ns = 0, greedy_bound_ns = 0;
};

Decision decide(const Picture& picture, int64_t now_ns);

}  // namespace ff::scheduler

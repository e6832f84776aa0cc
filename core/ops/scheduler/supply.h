// Nodes during one decision: what is free, what soon will be, what could be had by interrupting,
// for each kind of demand by zone and leaf. All counts are kept as nodes are given out, so that
// asking costs nothing with thousands of tasks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ops/scheduler/picture.h"

namespace ff::scheduler {

enum class Use : uint8_t {
  out,  // not in service
  free,
  soon,   // who has it was asked to stop
  held,   // by a task that can be interrupted now, of some level
  kept,   // by one that cannot
  given,  // in this decision
};

struct State {
  Use use = Use::out;
  Level level = 0;        // of held
  bool reserved = false;  // for the first of the group
};

struct Counts {
  uint32_t free = 0, soon = 0;
  std::array<uint32_t, kLevels> held = {};
};

// Nodes that serve one kind of demand, in order of zones, leaves and numbers.
struct Kind {
  struct Leaf {
    uint32_t zone = 0;             // index into zones
    uint32_t begin = 0, end = 0;   // in nodes
    std::array<Counts, 2> counts;  // not reserved, reserved
  };
  struct Zone {
    uint32_t zone = 0;
    uint32_t begin = 0, end = 0;  // leaves
    uint32_t size = 0;            // nodes, those out of service included
    std::array<Counts, 2> counts;
  };
  uint32_t group = 0;
  std::vector<uint32_t> nodes;
  std::vector<Leaf> leaves;
  std::vector<Zone> zones;
  uint32_t usable = 0;
};

constexpr uint32_t kAllZones = UINT32_MAX;

// Which nodes of a kind: of one of its zones (an index) or of all, reserved ones too or not.
struct Scope {
  uint32_t zone = kAllZones;
  bool reserved_too = false;
};

class Supply {
 public:
  Supply(const Picture& picture, int64_t now_ns);

  const Kind& kind(const Demand& demand);
  const State& state(uint32_t node) const { return states_[node]; }
  void set(uint32_t node, Use use);
  void reserve(uint32_t node);
  bool is_in(const Kind& kind, Scope scope, uint32_t node) const;
  // Whether a task can be interrupted now.
  bool gives_way(uint32_t task) const { return gives_way_[task]; }

  // So many nodes are there in the scope, free or also soon free, or also held below a level.
  static uint32_t free(const Kind& kind, Scope scope);
  static uint32_t free_or_soon(const Kind& kind, Scope scope);
  static uint32_t below(const Kind& kind, Scope scope, Level level);

  // `count` of the scope's nodes that are free, or soon free if `soon_too`; there are so many. On
  // as few leaves as possible, in the order of ranks. What is left over is left where most is
  // missing.
  std::vector<uint32_t> pick(const Kind& kind, Scope scope, uint32_t count, bool soon_too) const;
  // On how many leaves pick() would place them, and how much of the last one it would leave.
  struct Fit {
    uint32_t leaves = 0, left = 0;
    auto operator<=>(const Fit&) const = default;
  };
  Fit fit(const Kind& kind, Scope scope, uint32_t count, bool soon_too) const;

 private:
  struct Place {
    Kind* kind;
    uint32_t leaf;
  };
  struct Share {
    uint32_t leaf, count;
  };
  void count(uint32_t node, const State& state, int by);
  std::vector<Share> shares(const Kind& kind, Scope scope, uint32_t count, bool soon_too) const;

  const Picture& picture_;
  std::vector<State> states_;
  std::vector<bool> gives_way_;
  std::map<uint32_t, std::vector<uint32_t>> by_group_;  // in order of zones, leaves and numbers
  std::map<std::tuple<uint32_t, uint32_t, std::vector<uint32_t>>, Kind> kinds_;
  std::vector<std::vector<Place>> places_;  // by node
};

}  // namespace ff::scheduler

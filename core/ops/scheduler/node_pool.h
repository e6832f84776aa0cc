// The nodes during one scheduling pass: which are free, will be free soon, or can be freed by
// preemption, by zone and leaf for each kind of request. Counts are updated with each assignment,
// so queries are cheap even with thousands of tasks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "ops/scheduler/cluster_snapshot.h"

namespace ff::scheduler {

enum class NodeUse : uint8_t {
  out_of_service,
  free,
  releasing,    // its task was asked to stop
  preemptible,  // its task can be preempted now
  allocated,    // its task cannot be preempted
  assigned,     // in this pass
};

struct PoolNode {
  NodeUse use = NodeUse::out_of_service;
  PriorityLevel level = 0;  // of its task
  bool reserved = false;    // for the first waiting task of the partition
};

struct NodeCounts {
  uint32_t free = 0, releasing = 0;
  std::array<uint32_t, kPriorityLevels> preemptible = {};
};

// The nodes that match one resource request, in order of zones, leaves and numbers.
struct EligibleNodes {
  struct Leaf {
    uint32_t zone = 0;                 // index into zones
    uint32_t begin = 0, end = 0;       // in nodes
    std::array<NodeCounts, 2> counts;  // not reserved, reserved
  };
  struct Zone {
    uint32_t zone = 0;
    uint32_t begin = 0, end = 0;  // leaves
    uint32_t usable = 0;          // nodes in service
    std::array<NodeCounts, 2> counts;
  };
  uint32_t partition = 0;
  std::vector<uint32_t> nodes;
  std::vector<Leaf> leaves;
  std::vector<Zone> zones;
  uint32_t usable = 0;
};

constexpr uint32_t kAllZones = UINT32_MAX;

// A subset of the eligible nodes: one zone (an index) or all, with or without reserved nodes.
struct PoolScope {
  uint32_t zone = kAllZones;
  bool with_reserved = false;
};

class NodePool {
 public:
  NodePool(const ClusterSnapshot& snapshot, int64_t now_ns);

  const EligibleNodes& eligible(const ResourceRequest& request);
  const PoolNode& state(uint32_t node) const { return nodes_[node]; }
  void set(uint32_t node, NodeUse use);
  void reserve(uint32_t node);
  bool is_in(const EligibleNodes& eligible, PoolScope scope, uint32_t node) const;
  // Whether a task can be preempted now.
  bool is_preemptible(uint32_t task) const { return is_preemptible_[task]; }

  // Number of nodes of the scope that are free, or also releasing, or also preemptible below a
  // level.
  static uint32_t free(const EligibleNodes& eligible, PoolScope scope);
  static uint32_t free_or_releasing(const EligibleNodes& eligible, PoolScope scope);
  static uint32_t free_or_preemptible(const EligibleNodes& eligible, PoolScope scope,
                                      PriorityLevel level);

  // Chooses `count` nodes of the scope that are free, or also releasing if `with_releasing`; the
  // caller has checked that there are enough. Uses as few leaves as possible, in the order of
  // ranks; prefers the leaf with the best fit.
  std::vector<uint32_t> pick(const EligibleNodes& eligible, PoolScope scope, uint32_t count,
                             bool with_releasing) const;
  // The number of leaves that pick() would use, and the nodes it would leave free on the last one.
  struct Fit {
    uint32_t leaves = 0, left = 0;
    auto operator<=>(const Fit&) const = default;
  };
  Fit fit(const EligibleNodes& eligible, PoolScope scope, uint32_t count,
          bool with_releasing) const;

 private:
  struct LeafPosition {
    EligibleNodes* eligible;
    uint32_t leaf;
  };
  struct LeafShare {
    uint32_t leaf, count;
  };
  void count(uint32_t node, const PoolNode& state, int by);
  std::vector<LeafShare> shares(const EligibleNodes& eligible, PoolScope scope, uint32_t count,
                                bool with_releasing) const;

  const ClusterSnapshot& snapshot_;
  std::vector<PoolNode> nodes_;
  std::vector<bool> is_preemptible_;
  std::map<uint32_t, std::vector<uint32_t>> by_partition_;  // in order of zones, leaves and numbers
  std::map<std::tuple<uint32_t, uint32_t, std::vector<uint32_t>>, EligibleNodes> eligible_;
  std::vector<std::vector<LeafPosition>> positions_;  // by node
};

}  // namespace ff::scheduler

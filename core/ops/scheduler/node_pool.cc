// node_pool.cc: counts by zone and leaf, and the choice of leaves.
#include "ops/scheduler/node_pool.h"

#include <algorithm>

#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

uint32_t& of(NodeCounts& counts, const PoolNode& state) {
  switch (state.use) {
    case NodeUse::free: return counts.free;
    case NodeUse::releasing: return counts.releasing;
    default: return counts.preemptible[state.level];
  }
}

bool is_counted(NodeUse use) {
  return use == NodeUse::free || use == NodeUse::releasing || use == NodeUse::preemptible;
}

// Sums over the zones and reservations of a scope.
template <class Add>
uint32_t sum(const EligibleNodes& eligible, PoolScope scope, Add add) {
  uint32_t total = 0;
  for (size_t zone = 0; zone < eligible.zones.size(); zone++) {
    if (scope.zone != kAllZones && scope.zone != zone) continue;
    total += add(eligible.zones[zone].counts[0]);
    if (scope.with_reserved) total += add(eligible.zones[zone].counts[1]);
  }
  return total;
}

bool has_all(const std::vector<uint32_t>& labels, const std::vector<uint32_t>& wanted) {
  return std::ranges::includes(labels, wanted);
}

}  // namespace

NodePool::NodePool(const ClusterSnapshot& snapshot, int64_t now_ns)
    : snapshot_(snapshot),
      nodes_(snapshot.nodes.size()),
      is_preemptible_(snapshot.tasks.size(), false),
      positions_(snapshot.nodes.size()) {
  for (size_t i = 0; i < snapshot.tasks.size(); i++) {
    const Gang& task = snapshot.tasks[i];
    is_preemptible_[i] =
        task.phase == GangPhase::running && now_ns - task.started_ns >= task.min_run_ns;
  }
  for (uint32_t node = 0; node < snapshot.nodes.size(); node++) {
    const SnapshotNode& facts = snapshot.nodes[node];
    by_partition_[facts.partition].push_back(node);
    if (!facts.usable) continue;
    PoolNode& state = nodes_[node];
    if (facts.task == kNoIndex) {
      state.use = NodeUse::free;
      continue;
    }
    const Gang& task = snapshot.tasks[facts.task];
    state.level = task.charged_level;
    state.use = task.phase == GangPhase::stopping ? NodeUse::releasing
                : is_preemptible_[facts.task]     ? NodeUse::preemptible
                                                  : NodeUse::allocated;
  }
  for (auto& [partition, nodes] : by_partition_) {
    std::ranges::sort(nodes, {}, [&](uint32_t node) {
      const SnapshotNode& facts = snapshot.nodes[node];
      return std::tuple(facts.zone, facts.leaf, node);
    });
  }
}

const EligibleNodes& NodePool::eligible(const ResourceRequest& request) {
  const auto [found, is_new] =
      eligible_.try_emplace({request.partition, request.zone, request.labels});
  EligibleNodes& eligible = found->second;
  if (!is_new) return eligible;
  eligible.partition = request.partition;
  for (const uint32_t node : by_partition_[request.partition]) {
    const SnapshotNode& facts = snapshot_.nodes[node];
    if (request.zone != kAnyZone && facts.zone != request.zone) continue;
    if (!has_all(facts.labels, request.labels)) continue;
    const auto at = static_cast<uint32_t>(eligible.nodes.size());
    const bool new_zone = eligible.zones.empty() || eligible.zones.back().zone != facts.zone;
    if (new_zone || snapshot_.nodes[eligible.nodes.back()].leaf != facts.leaf) {
      const auto leaf = static_cast<uint32_t>(eligible.leaves.size());
      if (new_zone) eligible.zones.push_back({.zone = facts.zone, .begin = leaf, .counts = {}});
      const auto zone = static_cast<uint32_t>(eligible.zones.size() - 1);
      eligible.leaves.push_back({.zone = zone, .begin = at, .counts = {}});
    }
    eligible.nodes.push_back(node);
    eligible.leaves.back().end = at + 1;
    eligible.zones.back().end = static_cast<uint32_t>(eligible.leaves.size());
    eligible.zones.back().usable += facts.usable ? 1 : 0;
    eligible.usable += facts.usable ? 1 : 0;
    positions_[node].push_back({&eligible, static_cast<uint32_t>(eligible.leaves.size() - 1)});
    const PoolNode& state = nodes_[node];
    if (!is_counted(state.use)) continue;
    of(eligible.leaves.back().counts[state.reserved], state)++;
    of(eligible.zones.back().counts[state.reserved], state)++;
  }
  return eligible;
}

void NodePool::count(uint32_t node, const PoolNode& state, int by) {
  if (!is_counted(state.use)) return;
  for (const LeafPosition& place : positions_[node]) {
    EligibleNodes::Leaf& leaf = place.eligible->leaves[place.leaf];
    of(leaf.counts[state.reserved], state) += static_cast<uint32_t>(by);
    of(place.eligible->zones[leaf.zone].counts[state.reserved], state) += static_cast<uint32_t>(by);
  }
}

void NodePool::set(uint32_t node, NodeUse use) {
  count(node, nodes_[node], -1);
  nodes_[node].use = use;
  count(node, nodes_[node], 1);
}

void NodePool::reserve(uint32_t node) {
  count(node, nodes_[node], -1);
  nodes_[node].reserved = true;
  count(node, nodes_[node], 1);
}

bool NodePool::is_in(const EligibleNodes& eligible, PoolScope scope, uint32_t node) const {
  if (nodes_[node].reserved && !scope.with_reserved) return false;
  return std::ranges::any_of(positions_[node], [&](const LeafPosition& place) {
    return place.eligible == &eligible &&
           (scope.zone == kAllZones || eligible.leaves[place.leaf].zone == scope.zone);
  });
}

uint32_t NodePool::free(const EligibleNodes& eligible, PoolScope scope) {
  return sum(eligible, scope, [](const NodeCounts& counts) { return counts.free; });
}

uint32_t NodePool::free_or_releasing(const EligibleNodes& eligible, PoolScope scope) {
  return sum(eligible, scope,
             [](const NodeCounts& counts) { return counts.free + counts.releasing; });
}

uint32_t NodePool::free_or_preemptible(const EligibleNodes& eligible, PoolScope scope,
                                       PriorityLevel level) {
  return sum(eligible, scope, [level](const NodeCounts& counts) {
    uint32_t total = counts.free + counts.releasing;
    for (PriorityLevel lower = 0; lower < level; lower++) total += counts.preemptible[lower];
    return total;
  });
}

// Takes the fullest leaves until one suffices for the rest, and then the best fit for it.
std::vector<NodePool::LeafShare> NodePool::shares(const EligibleNodes& eligible, PoolScope scope,
                                                  uint32_t count, bool with_releasing) const {
  std::vector<LeafShare> there;
  const auto available = [&](const NodeCounts& counts) {
    return counts.free + (with_releasing ? counts.releasing : 0);
  };
  const auto add_zone = [&](const EligibleNodes::Zone& zone) {
    uint32_t total = 0;
    for (uint32_t leaf = zone.begin; leaf < zone.end; leaf++) {
      const auto& counts = eligible.leaves[leaf].counts;
      const uint32_t some = available(counts[0]) + (scope.with_reserved ? available(counts[1]) : 0);
      if (some > 0) there.push_back({leaf, some});
      total += some;
    }
    return total;
  };
  const auto take = [&](uint32_t wanted, std::vector<LeafShare>& into) {
    const LeafShare* whole = nullptr;
    for (const LeafShare& share : there) {
      if (share.count >= wanted && (whole == nullptr || share.count < whole->count)) whole = &share;
    }
    if (whole != nullptr) return into.push_back({whole->leaf, wanted});
    std::ranges::sort(there, [](const LeafShare& a, const LeafShare& b) {
      return std::tuple(b.count, a.leaf) < std::tuple(a.count, b.leaf);
    });
    for (size_t i = 0; wanted > 0; i++) {
      FF_CHECK(i < there.size());
      size_t best = i;
      while (best + 1 < there.size() && there[best + 1].count >= wanted) best++;
      const uint32_t some = std::min(there[best].count, wanted);
      into.push_back({there[best].leaf, some});
      wanted -= some;
    }
  };
  std::vector<LeafShare> chosen;
  if (scope.zone != kAllZones) {
    add_zone(eligible.zones[scope.zone]);
    take(count, chosen);
    return chosen;
  }
  // Uses as few zones as possible.
  std::vector<std::pair<uint32_t, uint32_t>> zones;  // nodes, index
  for (uint32_t zone = 0; zone < eligible.zones.size(); zone++) {
    const auto& counts = eligible.zones[zone].counts;
    const uint32_t some = available(counts[0]) + (scope.with_reserved ? available(counts[1]) : 0);
    if (some > 0) zones.emplace_back(some, zone);
  }
  std::ranges::sort(zones, [](const auto& a, const auto& b) {
    return std::tuple(b.first, a.second) < std::tuple(a.first, b.second);
  });
  uint32_t left = count;
  for (size_t i = 0; left > 0; i++) {
    FF_CHECK(i < zones.size());
    const uint32_t some = std::min(left, zones[i].first);
    there.clear();
    add_zone(eligible.zones[zones[i].second]);
    take(some, chosen);
    left -= some;
  }
  return chosen;
}

std::vector<uint32_t> NodePool::pick(const EligibleNodes& eligible, PoolScope scope, uint32_t count,
                                     bool with_releasing) const {
  std::vector<LeafShare> chosen = shares(eligible, scope, count, with_releasing);
  std::ranges::sort(chosen, {}, &LeafShare::leaf);
  std::vector<uint32_t> nodes;
  nodes.reserve(count);
  for (const LeafShare& share : chosen) {
    const EligibleNodes::Leaf& leaf = eligible.leaves[share.leaf];
    uint32_t wanted = share.count;
    for (const NodeUse use : {NodeUse::free, NodeUse::releasing}) {
      for (uint32_t at = leaf.begin; at < leaf.end && wanted > 0; at++) {
        const PoolNode& state = nodes_[eligible.nodes[at]];
        if (state.use != use || (state.reserved && !scope.with_reserved)) continue;
        nodes.push_back(eligible.nodes[at]);
        wanted--;
      }
      if (!with_releasing) break;
    }
    FF_CHECK(wanted == 0);
  }
  return nodes;
}

NodePool::Fit NodePool::fit(const EligibleNodes& eligible, PoolScope scope, uint32_t count,
                            bool with_releasing) const {
  const std::vector<LeafShare> chosen = shares(eligible, scope, count, with_releasing);
  const auto& counts = eligible.leaves[chosen.back().leaf].counts;
  uint32_t there = counts[0].free + (with_releasing ? counts[0].releasing : 0);
  if (scope.with_reserved) there += counts[1].free + (with_releasing ? counts[1].releasing : 0);
  return {.leaves = static_cast<uint32_t>(chosen.size()), .left = there - chosen.back().count};
}

}  // namespace ff::scheduler

// supply.cc: counts by zone and leaf, and the choice of leaves.
#include "ops/scheduler/supply.h"

#include <algorithm>

#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

uint32_t& of(Counts& counts, const State& state) {
  switch (state.use) {
    case Use::free: return counts.free;
    case Use::soon: return counts.soon;
    default: return counts.held[state.level];
  }
}

bool is_counted(Use use) { return use == Use::free || use == Use::soon || use == Use::held; }

// Adds up over the zones and the reservations of a scope.
template <class Add>
uint32_t sum(const Kind& kind, Scope scope, Add add) {
  uint32_t total = 0;
  for (size_t zone = 0; zone < kind.zones.size(); zone++) {
    if (scope.zone != kAllZones && scope.zone != zone) continue;
    total += add(kind.zones[zone].counts[0]);
    if (scope.reserved_too) total += add(kind.zones[zone].counts[1]);
  }
  return total;
}

bool has_all(const std::vector<uint32_t>& marks, const std::vector<uint32_t>& wanted) {
  return std::ranges::includes(marks, wanted);
}

}  // namespace

Supply::Supply(const Picture& picture, int64_t now_ns)
    : picture_(picture),
      states_(picture.nodes.size()),
      gives_way_(picture.tasks.size(), false),
      places_(picture.nodes.size()) {
  for (size_t i = 0; i < picture.tasks.size(); i++) {
    const Gang& task = picture.tasks[i];
    gives_way_[i] = task.phase == Phase::running && now_ns - task.started_ns >= task.min_run_ns;
  }
  for (uint32_t node = 0; node < picture.nodes.size(); node++) {
    const Node& facts = picture.nodes[node];
    by_group_[facts.group].push_back(node);
    if (!facts.usable) continue;
    State& state = states_[node];
    if (facts.task == kNobody) {
      state.use = Use::free;
      continue;
    }
    const Gang& task = picture.tasks[facts.task];
    state.level = task.charged;
    state.use = task.phase == Phase::stopping ? Use::soon
                : gives_way_[facts.task]      ? Use::held
                                              : Use::kept;
  }
  for (auto& [group, nodes] : by_group_) {
    std::ranges::sort(nodes, {}, [&](uint32_t node) {
      const Node& facts = picture.nodes[node];
      return std::tuple(facts.zone, facts.leaf, node);
    });
  }
}

const Kind& Supply::kind(const Demand& demand) {
  const auto [found, is_new] = kinds_.try_emplace({demand.group, demand.zone, demand.marks});
  Kind& kind = found->second;
  if (!is_new) return kind;
  kind.group = demand.group;
  for (const uint32_t node : by_group_[demand.group]) {
    const Node& facts = picture_.nodes[node];
    if (demand.zone != kAnywhere && facts.zone != demand.zone) continue;
    if (!has_all(facts.marks, demand.marks)) continue;
    const auto at = static_cast<uint32_t>(kind.nodes.size());
    const bool new_zone = kind.zones.empty() || kind.zones.back().zone != facts.zone;
    if (new_zone || picture_.nodes[kind.nodes.back()].leaf != facts.leaf) {
      const auto leaf = static_cast<uint32_t>(kind.leaves.size());
      if (new_zone) kind.zones.push_back({.zone = facts.zone, .begin = leaf, .counts = {}});
      const auto zone = static_cast<uint32_t>(kind.zones.size() - 1);
      kind.leaves.push_back({.zone = zone, .begin = at, .counts = {}});
    }
    kind.nodes.push_back(node);
    kind.leaves.back().end = at + 1;
    kind.zones.back().end = static_cast<uint32_t>(kind.leaves.size());
    kind.zones.back().size++;
    kind.usable += facts.usable ? 1 : 0;
    places_[node].push_back({&kind, static_cast<uint32_t>(kind.leaves.size() - 1)});
    const State& state = states_[node];
    if (!is_counted(state.use)) continue;
    of(kind.leaves.back().counts[state.reserved], state)++;
    of(kind.zones.back().counts[state.reserved], state)++;
  }
  return kind;
}

void Supply::count(uint32_t node, const State& state, int by) {
  if (!is_counted(state.use)) return;
  for (const Place& place : places_[node]) {
    Kind::Leaf& leaf = place.kind->leaves[place.leaf];
    of(leaf.counts[state.reserved], state) += static_cast<uint32_t>(by);
    of(place.kind->zones[leaf.zone].counts[state.reserved], state) += static_cast<uint32_t>(by);
  }
}

void Supply::set(uint32_t node, Use use) {
  count(node, states_[node], -1);
  states_[node].use = use;
  count(node, states_[node], 1);
}

void Supply::reserve(uint32_t node) {
  count(node, states_[node], -1);
  states_[node].reserved = true;
  count(node, states_[node], 1);
}

bool Supply::is_in(const Kind& kind, Scope scope, uint32_t node) const {
  if (states_[node].reserved && !scope.reserved_too) return false;
  return std::ranges::any_of(places_[node], [&](const Place& place) {
    return place.kind == &kind &&
           (scope.zone == kAllZones || kind.leaves[place.leaf].zone == scope.zone);
  });
}

uint32_t Supply::free(const Kind& kind, Scope scope) {
  return sum(kind, scope, [](const Counts& counts) { return counts.free; });
}

uint32_t Supply::free_or_soon(const Kind& kind, Scope scope) {
  return sum(kind, scope, [](const Counts& counts) { return counts.free + counts.soon; });
}

uint32_t Supply::below(const Kind& kind, Scope scope, Level level) {
  return sum(kind, scope, [level](const Counts& counts) {
    uint32_t total = counts.free + counts.soon;
    for (Level lower = 0; lower < level; lower++) total += counts.held[lower];
    return total;
  });
}

// The fullest leaves until one is enough for the rest, and then the one that fits it best.
std::vector<Supply::Share> Supply::shares(const Kind& kind, Scope scope, uint32_t count,
                                          bool soon_too) const {
  std::vector<Share> there;
  const auto available = [&](const Counts& counts) {
    return counts.free + (soon_too ? counts.soon : 0);
  };
  const auto add_zone = [&](const Kind::Zone& zone) {
    uint32_t total = 0;
    for (uint32_t leaf = zone.begin; leaf < zone.end; leaf++) {
      const auto& counts = kind.leaves[leaf].counts;
      const uint32_t some = available(counts[0]) + (scope.reserved_too ? available(counts[1]) : 0);
      if (some > 0) there.push_back({leaf, some});
      total += some;
    }
    return total;
  };
  const auto take = [&](uint32_t wanted, std::vector<Share>& into) {
    const Share* whole = nullptr;
    for (const Share& share : there) {
      if (share.count >= wanted && (whole == nullptr || share.count < whole->count)) whole = &share;
    }
    if (whole != nullptr) return into.push_back({whole->leaf, wanted});
    std::ranges::sort(there, [](const Share& a, const Share& b) {
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
  std::vector<Share> chosen;
  if (scope.zone != kAllZones) {
    add_zone(kind.zones[scope.zone]);
    take(count, chosen);
    return chosen;
  }
  // As few zones as possible.
  std::vector<std::pair<uint32_t, uint32_t>> zones;  // nodes, index
  for (uint32_t zone = 0; zone < kind.zones.size(); zone++) {
    const auto& counts = kind.zones[zone].counts;
    const uint32_t some = available(counts[0]) + (scope.reserved_too ? available(counts[1]) : 0);
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
    add_zone(kind.zones[zones[i].second]);
    take(some, chosen);
    left -= some;
  }
  return chosen;
}

std::vector<uint32_t> Supply::pick(const Kind& kind, Scope scope, uint32_t count,
                                   bool soon_too) const {
  std::vector<Share> chosen = shares(kind, scope, count, soon_too);
  std::ranges::sort(chosen, {}, &Share::leaf);
  std::vector<uint32_t> nodes;
  nodes.reserve(count);
  for (const Share& share : chosen) {
    const Kind::Leaf& leaf = kind.leaves[share.leaf];
    uint32_t wanted = share.count;
    for (const Use use : {Use::free, Use::soon}) {
      for (uint32_t at = leaf.begin; at < leaf.end && wanted > 0; at++) {
        const State& state = states_[kind.nodes[at]];
        if (state.use != use || (state.reserved && !scope.reserved_too)) continue;
        nodes.push_back(kind.nodes[at]);
        wanted--;
      }
      if (!soon_too) break;
    }
    FF_CHECK(wanted == 0);
  }
  return nodes;
}

Supply::Fit Supply::fit(const Kind& kind, Scope scope, uint32_t count, bool soon_too) const {
  const std::vector<Share> chosen = shares(kind, scope, count, soon_too);
  const auto& counts = kind.leaves[chosen.back().leaf].counts;
  uint32_t there = counts[0].free + (soon_too ? counts[0].soon : 0);
  if (scope.reserved_too) there += counts[1].free + (soon_too ? counts[1].soon : 0);
  return {.leaves = static_cast<uint32_t>(chosen.size()), .left = there - chosen.back().count};
}

}  // namespace ff::scheduler

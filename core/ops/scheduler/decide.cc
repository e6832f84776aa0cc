// decide.cc: one pass over the waiting tasks.
#include "ops/scheduler/decide.h"

#include <algorithm>
#include <array>

#include "ops/scheduler/supply.h"
#include "ops/scheduler/victims.h"
#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

constexpr std::array<std::string_view, 8> kWhys = {"not_yet",  "no_quota", "never", "nodes_out",
                                                   "stopping", "zones",    "first", "behind"};

int64_t later(int64_t from_ns, int64_t by_ns) {
  return from_ns > kNever - by_ns ? kNever : from_ns + by_ns;
}

class Pass {
 public:
  Pass(const Picture& picture, int64_t now_ns)
      : picture_(picture),
        now_ns_(now_ns),
        supply_(picture, now_ns),
        stopped_(picture.tasks.size(), false) {}

  Decision run() {
    survey();
    for (const uint32_t task : queue_) consider(task);
    return std::move(decision_);
  }

 private:
  // The first task of a group that must wait longer, with nodes reserved for it.
  struct First {
    uint32_t task = 0;
    Level level = 0;
    int64_t from_ns = kNever;
  };
  // Tasks of one level that can be interrupted, least loss a node first.
  struct Queue {
    std::vector<uint32_t> tasks;
    size_t begin = 0;  // those before it have been asked to stop
  };
  // One task that is looked at.
  struct Asks {
    uint32_t task;
    Level level;
    const Kind& kind;
    uint32_t count;
    const First* first;
    bool may_span;  // zones
  };

  void survey();
  std::optional<Level> charge_level(const Gang& task, Wait& wait) const;
  bool has_quota(const Gang& task, Level level, uint32_t* missing) const;
  void consider(uint32_t task);
  bool may_use_reserved(const Asks& asks) const;
  bool try_start(const Asks& asks, Scope scope);
  bool try_claim(const Asks& asks, Scope scope);
  bool try_interrupt(const Asks& asks);
  Candidate candidate(const Asks& asks, Scope scope, uint32_t index) const;
  std::optional<Victims> victims(const Asks& asks, Scope scope);
  void block(const Asks& asks);
  void reserve(const Asks& asks, First& first);
  int64_t free_from(uint32_t node, Level level) const;
  void start(const Asks& asks, Scope scope);
  void claim(const Asks& asks, Scope scope);
  std::vector<Scope> zone_scopes(const Asks& asks) const;
  bool loses_less(uint32_t a, uint32_t b) const;
  bool spans(const std::vector<uint32_t>& nodes) const;

  const Picture& picture_;
  const int64_t now_ns_;
  Supply supply_;
  std::vector<uint32_t> queue_;                                   // tasks that wait, in their turn
  std::map<uint32_t, std::array<Queue, kLevels>> interruptible_;  // by group
  std::vector<bool> stopped_;                                     // by task: in this pass
  std::map<std::tuple<uint32_t, uint32_t, Level>, uint32_t> charged_;  // user, group, level: nodes
  std::map<uint32_t, First> firsts_;                                   // by group
  uint32_t spanning_ = kNobody;                                        // the task that spans zones
  Decision decision_;
};

void Pass::survey() {
  std::vector<Level> level(picture_.tasks.size(), 0);
  for (uint32_t i = 0; i < picture_.tasks.size(); i++) {
    const Gang& task = picture_.tasks[i];
    if (task.phase == Phase::waiting) {
      queue_.push_back(i);
      continue;
    }
    const uint32_t group = task.demand.group;
    charged_[{task.user, group, task.charged}] += static_cast<uint32_t>(task.nodes.size());
    if (supply_.gives_way(i)) interruptible_[group][task.charged].tasks.push_back(i);
    if (spanning_ == kNobody && spans(task.nodes)) spanning_ = i;
  }
  for (auto& [group, levels] : interruptible_) {
    for (Queue& queue : levels) {
      std::ranges::sort(queue.tasks, [this](uint32_t a, uint32_t b) { return loses_less(a, b); });
    }
  }
  // Those whose level depends on quotas are placed by the one that they would get now.
  for (const uint32_t i : queue_) {
    Wait unused;
    const Gang& task = picture_.tasks[i];
    level[i] = task.level.value_or(charge_level(task, unused).value_or(0));
  }
  std::ranges::sort(queue_, [&](uint32_t a, uint32_t b) {
    return std::tuple(level[b], picture_.tasks[a].order) <
           std::tuple(level[a], picture_.tasks[b].order);
  });
}

// For each node. Of the same loss, who has run less.
bool Pass::loses_less(uint32_t a, uint32_t b) const {
  const Gang& one = picture_.tasks[a];
  const Gang& other = picture_.tasks[b];
  return std::tuple(-one.saved_ns, -one.started_ns, one.order) <
         std::tuple(-other.saved_ns, -other.started_ns, other.order);
}

bool Pass::spans(const std::vector<uint32_t>& nodes) const {
  return std::ranges::any_of(nodes, [&](uint32_t node) {
    return picture_.nodes[node].zone != picture_.nodes[nodes.front()].zone;
  });
}

bool Pass::has_quota(const Gang& task, Level level, uint32_t* missing) const {
  const auto limit = picture_.quotas.limit(task.user, task.demand.group, level);
  if (!limit) return true;
  const auto found = charged_.find({task.user, task.demand.group, level});
  const uint32_t wanted = task.demand.nodes + (found == charged_.end() ? 0 : found->second);
  *missing = wanted > *limit ? wanted - *limit : 0;
  return *missing == 0;
}

// Without a level of its own: the highest at which it has a quota with room; with no quota at all,
// the usual one.
std::optional<Level> Pass::charge_level(const Gang& task, Wait& wait) const {
  if (task.level) {
    return has_quota(task, *task.level, &wait.missing) ? task.level : std::nullopt;
  }
  bool any = false;
  for (size_t level = kLevels; level-- > 0;) {
    const auto one = static_cast<Level>(level);
    if (!picture_.quotas.limit(task.user, task.demand.group, one)) continue;
    any = true;
    uint32_t missing = 0;
    if (has_quota(task, one, &missing)) return one;
    wait.missing = wait.missing == 0 ? missing : std::min(wait.missing, missing);
  }
  if (any) return std::nullopt;
  return kUsualLevel;
}

void Pass::consider(uint32_t index) {
  const Gang& task = picture_.tasks[index];
  Wait why{.task = index};
  const auto refuse = [&](Why reason, uint32_t missing = 0, int64_t expected_ns = kNever) {
    why.why = reason;
    why.missing = missing;
    why.expected_ns = expected_ns;
    decision_.waits.push_back(why);
  };
  if (task.ready_ns > now_ns_) return refuse(Why::not_yet, 0, task.ready_ns);
  const Kind& kind = supply_.kind(task.demand);
  const uint32_t count = task.demand.nodes;
  const auto all = static_cast<uint32_t>(kind.nodes.size());
  if (count > all) return refuse(Why::never, count - all);
  if (count > kind.usable) return refuse(Why::nodes_out, count - kind.usable);
  const auto level = charge_level(task, why);
  if (!level) return refuse(Why::no_quota, why.missing);
  const auto first = firsts_.find(kind.group);
  const Asks asks{.task = index,
                  .level = *level,
                  .kind = kind,
                  .count = count,
                  .first = first == firsts_.end() ? nullptr : &first->second,
                  .may_span = kind.zones.size() > 1 && spanning_ == kNobody};
  const bool reserved_too = may_use_reserved(asks);
  const Scope everywhere{.reserved_too = reserved_too};
  // Most cannot: that is seen at once.
  if (Supply::below(kind, everywhere, *level) < count) return block(asks);
  for (const Scope scope : zone_scopes(asks)) {
    if (try_start(asks, scope)) return;
  }
  for (const Scope scope : zone_scopes(asks)) {
    if (try_claim(asks, scope)) return;
  }
  if (asks.may_span && (try_start(asks, everywhere) || try_claim(asks, everywhere))) return;
  if (try_interrupt(asks)) return;
  block(asks);
}

// Zones of its kind, the best fit first; with what is free now.
std::vector<Scope> Pass::zone_scopes(const Asks& asks) const {
  std::vector<std::pair<Supply::Fit, Scope>> fits;
  const bool reserved_too = may_use_reserved(asks);
  for (uint32_t zone = 0; zone < asks.kind.zones.size(); zone++) {
    const Scope scope{.zone = zone, .reserved_too = reserved_too};
    Supply::Fit fit{.leaves = UINT32_MAX};
    if (Supply::free(asks.kind, scope) >= asks.count) {
      fit = supply_.fit(asks.kind, scope, asks.count, false);
    }
    fits.emplace_back(fit, scope);
  }
  std::ranges::stable_sort(fits, {}, [](const auto& one) { return one.first; });
  std::vector<Scope> scopes;
  for (const auto& [fit, scope] : fits) scopes.push_back(scope);
  return scopes;
}

// It ends before the reservation, or can be interrupted for it at once.
bool Pass::may_use_reserved(const Asks& asks) const {
  if (asks.first == nullptr) return true;
  const Gang& task = picture_.tasks[asks.task];
  if (asks.level < asks.first->level && task.min_run_ns == 0) return true;
  if (task.limit_ns == 0 || asks.first->from_ns == kNever) return false;
  return later(now_ns_ + task.limit_ns, picture_.stop_ns) <= asks.first->from_ns;
}

bool Pass::try_start(const Asks& asks, Scope scope) {
  if (Supply::free(asks.kind, scope) < asks.count) return false;
  start(asks, scope);
  return true;
}

bool Pass::try_claim(const Asks& asks, Scope scope) {
  if (Supply::free_or_soon(asks.kind, scope) < asks.count) return false;
  claim(asks, scope);
  return true;
}

void Pass::start(const Asks& asks, Scope scope) {
  const Gang& task = picture_.tasks[asks.task];
  Start start{.task = asks.task, .level = asks.level};
  start.nodes = supply_.pick(asks.kind, scope, asks.count, false);
  for (const uint32_t node : start.nodes) supply_.set(node, Use::given);
  charged_[{task.user, task.demand.group, asks.level}] += asks.count;
  if (scope.zone == kAllZones && spans(start.nodes)) spanning_ = asks.task;
  decision_.starts.push_back(std::move(start));
}

// Nodes that are free, and that others give up for it: nobody else gets them meanwhile.
void Pass::claim(const Asks& asks, Scope scope) {
  const Gang& task = picture_.tasks[asks.task];
  const auto nodes = supply_.pick(asks.kind, scope, asks.count, true);
  for (const uint32_t node : nodes) supply_.set(node, Use::given);
  charged_[{task.user, task.demand.group, asks.level}] += asks.count;
  if (scope.zone == kAllZones && spans(nodes)) spanning_ = asks.task;
  decision_.waits.push_back(
      {.task = asks.task, .why = Why::stopping, .expected_ns = now_ns_ + picture_.stop_ns});
}

bool Pass::try_interrupt(const Asks& asks) {
  // A reservation gives way to a task that ends in time, not to one that must wait for others
  // first.
  const bool reserved_too = asks.first == nullptr || (asks.level < asks.first->level &&
                                                      picture_.tasks[asks.task].min_run_ns == 0);
  std::optional<Victims> best;
  Scope where;
  for (uint32_t zone = 0; zone < asks.kind.zones.size(); zone++) {
    const Scope scope{.zone = zone, .reserved_too = reserved_too};
    auto found = victims(asks, scope);
    if (!found || (best && !(found->toll < best->toll))) continue;
    best = std::move(found);
    where = scope;
  }
  if (!best && asks.may_span) {
    where = {.reserved_too = reserved_too};
    best = victims(asks, where);
  }
  if (!best) return false;
  for (const uint32_t victim : best->tasks) {
    decision_.interrupts.push_back({.task = victim, .for_task = asks.task});
    stopped_[victim] = true;
    for (const uint32_t node : picture_.tasks[victim].nodes) {
      if (supply_.state(node).use == Use::held) supply_.set(node, Use::soon);
    }
  }
  decision_.lost_ns += best->toll.lost_ns;
  if (!best->is_exact) {
    decision_.greedy_lost_ns += best->toll.lost_ns;
    decision_.greedy_bound_ns += best->bound_ns;
  }
  claim(asks, where);
  return true;
}

Candidate Pass::candidate(const Asks& asks, Scope scope, uint32_t index) const {
  const Gang& task = picture_.tasks[index];
  Candidate one{.task = index, .level = task.charged};
  for (const uint32_t node : task.nodes) {
    const bool here = supply_.state(node).use == Use::held && supply_.is_in(asks.kind, scope, node);
    one.gain += here ? 1 : 0;
  }
  one.nodes = static_cast<uint32_t>(task.nodes.size());
  one.lost_ns = one.nodes * (now_ns_ - task.saved_ns);
  one.ran_ns = now_ns_ - task.started_ns;
  return one;
}

// Who would have to go so that there are enough of the scope's nodes.
std::optional<Victims> Pass::victims(const Asks& asks, Scope scope) {
  if (Supply::below(asks.kind, scope, asks.level) < asks.count) return std::nullopt;
  const uint32_t wanted = asks.count - Supply::free_or_soon(asks.kind, scope);
  Level level = 0;
  while (Supply::below(asks.kind, scope, level + 1) < asks.count) level++;
  auto& levels = interruptible_[asks.kind.group];
  std::array<size_t, kLevels> at = {};
  for (size_t i = 0; i <= level; i++) {
    Queue& queue = levels[i];
    while (queue.begin < queue.tasks.size() && stopped_[queue.tasks[queue.begin]]) queue.begin++;
    at[i] = queue.begin;
  }
  std::vector<Candidate> candidates;
  uint32_t gain = 0;
  // The rest loses more for each node.
  while (gain < wanted || candidates.size() <= kExactMax) {
    size_t next = kLevels;
    for (size_t i = 0; i <= level; i++) {
      if (at[i] == levels[i].tasks.size()) continue;
      const bool first =
          next == kLevels || loses_less(levels[i].tasks[at[i]], levels[next].tasks[at[next]]);
      if (first) next = i;
    }
    if (next == kLevels) break;
    const uint32_t index = levels[next].tasks[at[next]++];
    const Candidate one = stopped_[index] ? Candidate() : candidate(asks, scope, index);
    if (one.gain > 0) candidates.push_back(one);
    gain += one.gain;
  }
  return choose_victims(candidates, wanted);
}

void Pass::block(const Asks& asks) {
  Wait why{.task = asks.task, .why = Why::behind};
  const bool reserved_too = may_use_reserved(asks);
  if (asks.kind.zones.size() > 1 && spanning_ != kNobody &&
      std::ranges::all_of(asks.kind.zones,
                          [&](const Kind::Zone& zone) { return zone.size < asks.count; })) {
    why.why = Why::zones;
    why.other = spanning_;
  } else if (asks.first != nullptr) {
    why.other = asks.first->task;
    why.expected_ns = kNever;
  } else {
    First first{.task = asks.task, .level = asks.level};
    reserve(asks, first);
    why.why = Why::first;
    why.expected_ns = first.from_ns;
    firsts_[asks.kind.group] = first;
  }
  const uint32_t there = Supply::free(asks.kind, {.reserved_too = reserved_too});
  why.missing = asks.count > there ? asks.count - there : 0;
  decision_.waits.push_back(why);
}

// When a node is free for a task of a level at the latest, as far as one can tell.
int64_t Pass::free_from(uint32_t node, Level level) const {
  const State& state = supply_.state(node);
  switch (state.use) {
    case Use::out:
    case Use::given: return kNever;
    case Use::free: return now_ns_;
    case Use::soon: return now_ns_ + picture_.stop_ns;
    case Use::held:
    case Use::kept: break;
  }
  const Gang& task = picture_.tasks[picture_.nodes[node].task];
  int64_t from_ns = kNever;
  if (task.charged < level) {
    const int64_t may_stop_ns = later(task.started_ns, task.min_run_ns);
    from_ns = later(std::max(may_stop_ns, now_ns_), picture_.stop_ns);
  }
  if (task.limit_ns > 0) {
    const int64_t ends_ns = later(later(task.started_ns, task.limit_ns), picture_.stop_ns);
    from_ns = std::min(from_ns, std::max(ends_ns, now_ns_));
  }
  return from_ns;
}

// The nodes of the zone that has enough first; those that come last of them, so that as many as can
// be of those that are free stay for others.
void Pass::reserve(const Asks& asks, First& first) {
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> zones;
  const auto collect = [&](const Kind::Zone& zone, auto& into) {
    for (uint32_t leaf = zone.begin; leaf < zone.end; leaf++) {
      const Kind::Leaf& one = asks.kind.leaves[leaf];
      for (uint32_t at = one.begin; at < one.end; at++) {
        const uint32_t node = asks.kind.nodes[at];
        const int64_t from_ns = free_from(node, asks.level);
        if (supply_.state(node).use != Use::out) into.emplace_back(from_ns, node);
      }
    }
  };
  for (const Kind::Zone& zone : asks.kind.zones) collect(zone, zones.emplace_back());
  if (asks.may_span) {
    auto& all = zones.emplace_back();
    for (const Kind::Zone& zone : asks.kind.zones) collect(zone, all);
  }
  const std::vector<std::pair<int64_t, uint32_t>>* best = nullptr;
  for (auto& zone : zones) {
    if (zone.size() < asks.count) continue;
    std::ranges::sort(zone);
    const int64_t from_ns = zone[asks.count - 1].first;
    if (from_ns >= first.from_ns) continue;
    first.from_ns = from_ns;
    best = &zone;
  }
  if (best == nullptr) {  // nobody knows when: all that it could use
    for (const uint32_t node : asks.kind.nodes) supply_.reserve(node);
    return;
  }
  size_t end = asks.count;
  while (end < best->size() && (*best)[end].first <= first.from_ns) end++;
  for (size_t i = end - asks.count; i < end; i++) supply_.reserve((*best)[i].second);
}

}  // namespace

std::string_view why_name(Why why) { return kWhys[static_cast<size_t>(why)]; }

Decision decide(const Picture& picture, int64_t now_ns) { return Pass(picture, now_ns).run(); }

}  // namespace ff::scheduler

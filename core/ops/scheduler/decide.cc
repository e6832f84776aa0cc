// decide.cc: one scheduling pass over the waiting tasks.
#include "ops/scheduler/decide.h"

#include <algorithm>
#include <array>

#include "ops/scheduler/node_pool.h"
#include "ops/scheduler/victims.h"
#include "platform/base/check.h"

namespace ff::scheduler {

namespace {

constexpr std::array<std::string_view, 8> kWaitReasons = {
    "not_yet", "no_quota", "never", "nodes_out", "stopping", "zones", "first", "behind"};

int64_t later(int64_t from_ns, int64_t by_ns) {
  return from_ns > kNever - by_ns ? kNever : from_ns + by_ns;
}

class Pass {
 public:
  Pass(const ClusterSnapshot& snapshot, int64_t now_ns)
      : snapshot_(snapshot),
        now_ns_(now_ns),
        pool_(snapshot, now_ns),
        stopped_(snapshot.tasks.size(), false) {}

  SchedulingDecision run() {
    survey();
    for (const uint32_t task : queue_) consider(task);
    return std::move(decision_);
  }

 private:
  // The first task of a partition that must wait longer, with nodes reserved for it.
  struct Reservation {
    uint32_t task = 0;
    PriorityLevel level = 0;
    int64_t from_ns = kNever;
  };
  // Tasks of one level that can be preempted, in order of loss per node.
  struct Queue {
    std::vector<uint32_t> tasks;
    size_t begin = 0;  // tasks before it were asked to stop
  };
  // Whether a gang that needs two zones may span them: now, after the gang that spans zones was
  // preempted or has stopped, or only when that gang has ended.
  enum class SpanState : uint8_t { free, preemptible, releasing, taken };
  // The task that is being considered.
  struct PendingGang {
    uint32_t task;
    PriorityLevel level;
    const EligibleNodes& eligible;
    uint32_t count;
    const Reservation* first;
    bool needs_span;  // no zone has enough nodes in service
    SpanState span;
  };

  void survey();
  std::optional<PriorityLevel> charge_level(const Gang& task, TaskWait& wait) const;
  bool has_quota(const Gang& task, PriorityLevel level, TaskWait& wait) const;
  void consider(uint32_t task);
  SpanState span_state(const Gang& task, PriorityLevel level) const;
  bool needs_nodes_of_spanning(const PendingGang& pending) const;
  bool is_interruptible_for(const Gang& task, PriorityLevel level, const Reservation& first) const;
  bool ends_before(const Gang& task, const Reservation& first) const;
  bool may_use_reserved(const PendingGang& pending) const;
  bool try_start(const PendingGang& pending, PoolScope scope);
  bool try_claim(const PendingGang& pending, PoolScope scope);
  bool try_preempt(const PendingGang& pending);
  void preempt(const PendingGang& pending, const Victims& chosen);
  PreemptionCandidate candidate(const PendingGang& pending, PoolScope scope, uint32_t index) const;
  std::optional<Victims> victims(const PendingGang& pending, PoolScope scope);
  void block(const PendingGang& pending);
  void reserve(const PendingGang& pending, Reservation& first);
  int64_t available_ns(uint32_t node, PriorityLevel level) const;
  void start(const PendingGang& pending, PoolScope scope);
  void claim(const PendingGang& pending, PoolScope scope);
  std::vector<PoolScope> scopes(const PendingGang& pending, bool with_reserved) const;
  bool loses_less(uint32_t a, uint32_t b) const;
  bool spans(const std::vector<uint32_t>& nodes) const;
  void set_spanning(uint32_t task, std::vector<uint32_t> nodes);

  const ClusterSnapshot& snapshot_;
  const int64_t now_ns_;
  NodePool pool_;
  std::vector<uint32_t> queue_;                                         // waiting tasks, in order
  std::map<uint32_t, std::array<Queue, kPriorityLevels>> preemptible_;  // by partition
  std::vector<bool> stopped_;  // by task: preempted in this pass
  std::map<std::tuple<uint32_t, uint32_t, PriorityLevel>, uint32_t>
      charged_;                                   // user, partition, level: nodes
  std::map<uint32_t, Reservation> reservations_;  // by partition
  uint32_t spanning_ = kNoIndex;                  // the task that spans zones, and its nodes
  std::vector<uint32_t> spanning_nodes_;
  // Of the first waiting task that needs two zones: no other task may span them in its way.
  std::optional<Reservation> span_reservation_;
  SchedulingDecision decision_;
};

void Pass::survey() {
  std::vector<PriorityLevel> level(snapshot_.tasks.size(), 0);
  for (uint32_t i = 0; i < snapshot_.tasks.size(); i++) {
    const Gang& task = snapshot_.tasks[i];
    if (task.phase == GangPhase::waiting) {
      queue_.push_back(i);
      continue;
    }
    const uint32_t partition = task.request.partition;
    charged_[{task.user, partition, task.charged_level}] +=
        static_cast<uint32_t>(task.nodes.size());
    if (pool_.is_preemptible(i)) preemptible_[partition][task.charged_level].tasks.push_back(i);
    if (spanning_ == kNoIndex && spans(task.nodes)) set_spanning(i, task.nodes);
  }
  for (auto& [partition, levels] : preemptible_) {
    for (Queue& queue : levels) {
      std::ranges::sort(queue.tasks, [this](uint32_t a, uint32_t b) { return loses_less(a, b); });
    }
  }
  // Tasks without a level of their own are ordered by the level they would get now.
  for (const uint32_t i : queue_) {
    TaskWait unused;
    const Gang& task = snapshot_.tasks[i];
    level[i] = task.level.value_or(charge_level(task, unused).value_or(0));
  }
  std::ranges::sort(queue_, [&](uint32_t a, uint32_t b) {
    return std::tuple(level[b], snapshot_.tasks[a].order) <
           std::tuple(level[a], snapshot_.tasks[b].order);
  });
}

// By loss per node; with equal loss, by shorter run time.
bool Pass::loses_less(uint32_t a, uint32_t b) const {
  const Gang& one = snapshot_.tasks[a];
  const Gang& other = snapshot_.tasks[b];
  return std::tuple(-one.saved_ns, -one.started_ns, one.order) <
         std::tuple(-other.saved_ns, -other.started_ns, other.order);
}

bool Pass::spans(const std::vector<uint32_t>& nodes) const {
  return std::ranges::any_of(nodes, [&](uint32_t node) {
    return snapshot_.nodes[node].zone != snapshot_.nodes[nodes.front()].zone;
  });
}

void Pass::set_spanning(uint32_t task, std::vector<uint32_t> nodes) {
  spanning_ = task;
  spanning_nodes_ = std::move(nodes);
}

// Otherwise `wait` gets what is missing, of several levels the least.
bool Pass::has_quota(const Gang& task, PriorityLevel level, TaskWait& wait) const {
  const auto limit = snapshot_.quotas.limit(task.user, task.request.partition, level);
  if (!limit) return true;
  const auto found = charged_.find({task.user, task.request.partition, level});
  const uint32_t wanted = task.request.nodes + (found == charged_.end() ? 0 : found->second);
  if (wanted <= *limit) return true;
  const uint32_t missing = wanted - *limit;
  wait.missing = wait.missing == 0 ? missing : std::min(wait.missing, missing);
  wait.quota = std::max(wait.quota.value_or(0), *limit);
  return false;
}

// A task without a level of its own gets the highest level at which its quota has room; without any
// quota the default level.
std::optional<PriorityLevel> Pass::charge_level(const Gang& task, TaskWait& wait) const {
  if (task.level) {
    return has_quota(task, *task.level, wait) ? task.level : std::nullopt;
  }
  bool any = false;
  for (size_t level = kPriorityLevels; level-- > 0;) {
    const auto one = static_cast<PriorityLevel>(level);
    if (!snapshot_.quotas.limit(task.user, task.request.partition, one)) continue;
    any = true;
    if (has_quota(task, one, wait)) return one;
  }
  if (any) return std::nullopt;
  return kDefaultLevel;
}

void Pass::consider(uint32_t index) {
  const Gang& task = snapshot_.tasks[index];
  TaskWait wait{.task = index};
  const auto refuse = [&](WaitReason reason, uint32_t missing = 0, int64_t expected_ns = kNever) {
    wait.reason = reason;
    wait.missing = missing;
    wait.expected_ns = expected_ns;
    decision_.waits.push_back(wait);
  };
  if (task.ready_ns > now_ns_) return refuse(WaitReason::begin_time, 0, task.ready_ns);
  const EligibleNodes& eligible = pool_.eligible(task.request);
  const uint32_t count = task.request.nodes;
  const auto all = static_cast<uint32_t>(eligible.nodes.size());
  if (count > all) return refuse(WaitReason::unsatisfiable, count - all);
  if (count > eligible.usable)
    return refuse(WaitReason::nodes_unavailable, count - eligible.usable);
  const auto level = charge_level(task, wait);
  if (!level) return refuse(WaitReason::quota, wait.missing);
  const auto first = reservations_.find(eligible.partition);
  const bool needs_span = std::ranges::none_of(
      eligible.zones, [count](const EligibleNodes::Zone& zone) { return zone.usable >= count; });
  const PendingGang pending{.task = index,
                            .level = *level,
                            .eligible = eligible,
                            .count = count,
                            .first = first == reservations_.end() ? nullptr : &first->second,
                            .needs_span = needs_span,
                            .span = needs_span ? span_state(task, *level) : SpanState::free};
  const bool with_reserved = may_use_reserved(pending);
  // A quick test first: most waiting tasks cannot start.
  if (pending.span == SpanState::taken ||
      NodePool::free_or_preemptible(eligible, {.with_reserved = with_reserved}, *level) < count) {
    return block(pending);
  }
  const auto where = scopes(pending, with_reserved);
  const auto tries = [&](bool (Pass::*attempt)(const PendingGang&, PoolScope)) {
    return std::ranges::any_of(where,
                               [&](PoolScope scope) { return (this->*attempt)(pending, scope); });
  };
  if (pending.span == SpanState::free && tries(&Pass::try_start)) return;
  if (pending.span != SpanState::preemptible && tries(&Pass::try_claim)) return;
  if (try_preempt(pending)) return;
  block(pending);
}

// Where the task may run: in any zone, best fit first, by the nodes that are free now; or across
// all zones, if it needs more than one.
std::vector<PoolScope> Pass::scopes(const PendingGang& pending, bool with_reserved) const {
  if (pending.needs_span) return {{.with_reserved = with_reserved}};
  std::vector<std::pair<NodePool::Fit, PoolScope>> fits;
  for (uint32_t zone = 0; zone < pending.eligible.zones.size(); zone++) {
    const PoolScope scope{.zone = zone, .with_reserved = with_reserved};
    NodePool::Fit fit{.leaves = UINT32_MAX};
    if (NodePool::free(pending.eligible, scope) >= pending.count) {
      fit = pool_.fit(pending.eligible, scope, pending.count, false);
    }
    fits.emplace_back(fit, scope);
  }
  std::ranges::stable_sort(fits, {}, [](const auto& one) { return one.first; });
  std::vector<PoolScope> ordered;
  for (const auto& [fit, scope] : fits) ordered.push_back(scope);
  return ordered;
}

Pass::SpanState Pass::span_state(const Gang& task, PriorityLevel level) const {
  const bool is_kept_for_another =
      span_reservation_ && !is_interruptible_for(task, level, *span_reservation_);
  if (spanning_ == kNoIndex) {
    const bool is_taken = is_kept_for_another && !ends_before(task, *span_reservation_);
    return is_taken ? SpanState::taken : SpanState::free;
  }
  const Gang& holder = snapshot_.tasks[spanning_];
  if (is_kept_for_another || holder.phase == GangPhase::waiting) return SpanState::taken;
  if (holder.phase == GangPhase::stopping || stopped_[spanning_]) return SpanState::releasing;
  const bool is_lower = pool_.is_preemptible(spanning_) && holder.charged_level < level;
  return is_lower ? SpanState::preemptible : SpanState::taken;
}

// Whether it can be preempted for the reservation at once.
bool Pass::is_interruptible_for(const Gang& task, PriorityLevel level,
                                const Reservation& first) const {
  return level < first.level && task.min_run_ns == 0;
}

bool Pass::ends_before(const Gang& task, const Reservation& first) const {
  if (task.limit_ns == 0 || first.from_ns == kNever) return false;
  return later(now_ns_ + task.limit_ns, snapshot_.stop_ns) <= first.from_ns;
}

// It ends before the reservation starts, or can be preempted for it at once.
bool Pass::may_use_reserved(const PendingGang& pending) const {
  if (pending.first == nullptr) return true;
  const Gang& task = snapshot_.tasks[pending.task];
  return is_interruptible_for(task, pending.level, *pending.first) ||
         ends_before(task, *pending.first);
}

bool Pass::try_start(const PendingGang& pending, PoolScope scope) {
  if (NodePool::free(pending.eligible, scope) < pending.count) return false;
  start(pending, scope);
  return true;
}

bool Pass::try_claim(const PendingGang& pending, PoolScope scope) {
  if (NodePool::free_or_releasing(pending.eligible, scope) < pending.count) return false;
  claim(pending, scope);
  return true;
}

void Pass::start(const PendingGang& pending, PoolScope scope) {
  const Gang& task = snapshot_.tasks[pending.task];
  TaskStart start{.task = pending.task, .level = pending.level};
  start.nodes = pool_.pick(pending.eligible, scope, pending.count, false);
  for (const uint32_t node : start.nodes) pool_.set(node, NodeUse::assigned);
  charged_[{task.user, task.request.partition, pending.level}] += pending.count;
  if (pending.needs_span) set_spanning(pending.task, start.nodes);
  decision_.starts.push_back(std::move(start));
}

// Assigns nodes that are free or being released for it: no other task gets them meanwhile.
void Pass::claim(const PendingGang& pending, PoolScope scope) {
  const Gang& task = snapshot_.tasks[pending.task];
  const auto nodes = pool_.pick(pending.eligible, scope, pending.count, true);
  for (const uint32_t node : nodes) pool_.set(node, NodeUse::assigned);
  charged_[{task.user, task.request.partition, pending.level}] += pending.count;
  if (pending.needs_span) set_spanning(pending.task, nodes);
  decision_.waits.push_back({.task = pending.task,
                             .reason = WaitReason::releasing,
                             .expected_ns = now_ns_ + snapshot_.stop_ns});
}

bool Pass::try_preempt(const PendingGang& pending) {
  // Reserved nodes may be used by a task that ends in time, not by one that must first wait for
  // others.
  const bool with_reserved =
      pending.first == nullptr ||
      is_interruptible_for(snapshot_.tasks[pending.task], pending.level, *pending.first);
  std::optional<Victims> best;
  PoolScope where;
  for (const PoolScope scope : scopes(pending, with_reserved)) {
    auto found = victims(pending, scope);
    if (!found || (best && !(found->cost < best->cost))) continue;
    best = std::move(found);
    where = scope;
  }
  if (!best) return false;
  if (pending.span == SpanState::preemptible && !std::ranges::count(best->tasks, spanning_)) {
    // The task that spans zones must stop in any case; its nodes count, too.
    Victims spanning{.tasks = {spanning_}, .is_exact = true};
    spanning.cost.add(candidate(pending, where, spanning_));
    preempt(pending, spanning);
    best = victims(pending, where);
  }
  preempt(pending, *best);
  claim(pending, where);
  return true;
}

void Pass::preempt(const PendingGang& pending, const Victims& chosen) {
  for (const uint32_t victim : chosen.tasks) {
    decision_.preemptions.push_back({.task = victim, .for_task = pending.task});
    stopped_[victim] = true;
    for (const uint32_t node : snapshot_.tasks[victim].nodes) {
      if (pool_.state(node).use == NodeUse::preemptible) pool_.set(node, NodeUse::releasing);
    }
  }
  decision_.lost_ns += chosen.cost.lost_ns;
  if (!chosen.is_exact) {
    decision_.greedy_lost_ns += chosen.cost.lost_ns;
    decision_.greedy_bound_ns += chosen.lower_bound_ns;
  }
}

PreemptionCandidate Pass::candidate(const PendingGang& pending, PoolScope scope,
                                    uint32_t index) const {
  const Gang& task = snapshot_.tasks[index];
  PreemptionCandidate one{.task = index, .level = task.charged_level};
  for (const uint32_t node : task.nodes) {
    const bool here =
        pool_.state(node).use == NodeUse::preemptible && pool_.is_in(pending.eligible, scope, node);
    one.freed_nodes += here ? 1 : 0;
  }
  one.nodes = static_cast<uint32_t>(task.nodes.size());
  one.lost_ns = one.nodes * (now_ns_ - task.saved_ns);
  one.ran_ns = now_ns_ - task.started_ns;
  return one;
}

// The tasks to preempt so that the scope has enough nodes.
std::optional<Victims> Pass::victims(const PendingGang& pending, PoolScope scope) {
  if (NodePool::free_or_preemptible(pending.eligible, scope, pending.level) < pending.count)
    return std::nullopt;
  const uint32_t there = NodePool::free_or_releasing(pending.eligible, scope);
  if (there >= pending.count) return Victims{.is_exact = true};
  const uint32_t wanted = pending.count - there;
  PriorityLevel level = 0;
  while (NodePool::free_or_preemptible(pending.eligible, scope, level + 1) < pending.count) level++;
  auto& levels = preemptible_[pending.eligible.partition];
  std::array<size_t, kPriorityLevels> at = {};
  for (size_t i = 0; i <= level; i++) {
    Queue& queue = levels[i];
    while (queue.begin < queue.tasks.size() && stopped_[queue.tasks[queue.begin]]) queue.begin++;
    at[i] = queue.begin;
  }
  std::vector<PreemptionCandidate> candidates;
  uint32_t freed_nodes = 0;
  // All further candidates lose more per node.
  while (freed_nodes < wanted || candidates.size() <= kExactMax) {
    size_t next = kPriorityLevels;
    for (size_t i = 0; i <= level; i++) {
      if (at[i] == levels[i].tasks.size()) continue;
      const bool first = next == kPriorityLevels ||
                         loses_less(levels[i].tasks[at[i]], levels[next].tasks[at[next]]);
      if (first) next = i;
    }
    if (next == kPriorityLevels) break;
    const uint32_t index = levels[next].tasks[at[next]++];
    const PreemptionCandidate one =
        stopped_[index] ? PreemptionCandidate() : candidate(pending, scope, index);
    if (one.freed_nodes > 0) candidates.push_back(one);
    freed_nodes += one.freed_nodes;
  }
  return choose_victims(candidates, wanted);
}

void Pass::block(const PendingGang& pending) {
  TaskWait wait{.task = pending.task, .reason = WaitReason::resources};
  const bool waits_for_span = pending.span == SpanState::taken;
  // The first of a partition gets a reservation, unless the end of another task decides alone when
  // it starts: nodes would be kept free in vain.
  const bool is_first =
      pending.first == nullptr && (!waits_for_span || needs_nodes_of_spanning(pending));
  if (is_first) {
    Reservation first{.task = pending.task, .level = pending.level};
    reserve(pending, first);
    wait.expected_ns = first.from_ns;
    reservations_[pending.eligible.partition] = first;
    if (pending.needs_span && !span_reservation_) span_reservation_ = first;
  }
  if (waits_for_span) {
    wait.reason = WaitReason::zone_span;
    wait.other = spanning_ != kNoIndex ? spanning_ : span_reservation_->task;
    if (!is_first && spanning_ != kNoIndex) {
      wait.expected_ns = available_ns(spanning_nodes_.front(), pending.level);
    }
  } else if (!is_first) {
    wait.reason = WaitReason::priority;
    wait.other = pending.first->task;
  }
  const uint32_t there =
      NodePool::free(pending.eligible, {.with_reserved = may_use_reserved(pending)});
  wait.missing = pending.count > there ? pending.count - there : 0;
  decision_.waits.push_back(wait);
}

// Whether it could not start beside the task that spans zones, even if all other nodes were free.
bool Pass::needs_nodes_of_spanning(const PendingGang& pending) const {
  uint32_t others = pending.eligible.usable;
  for (const uint32_t node : spanning_nodes_) {
    const bool is_usable = pool_.state(node).use != NodeUse::out_of_service;
    if (is_usable && pool_.is_in(pending.eligible, {.with_reserved = true}, node)) others--;
  }
  return others < pending.count;
}

// The latest time at which a node is free for a task of a level, as an estimate.
int64_t Pass::available_ns(uint32_t node, PriorityLevel level) const {
  const PoolNode& state = pool_.state(node);
  switch (state.use) {
    case NodeUse::out_of_service:
    case NodeUse::assigned: return kNever;
    case NodeUse::free: return now_ns_;
    case NodeUse::releasing: return now_ns_ + snapshot_.stop_ns;
    case NodeUse::preemptible:
    case NodeUse::allocated: break;
  }
  const Gang& task = snapshot_.tasks[snapshot_.nodes[node].task];
  int64_t from_ns = kNever;
  if (task.charged_level < level) {
    const int64_t may_stop_ns = later(task.started_ns, task.min_run_ns);
    from_ns = later(std::max(may_stop_ns, now_ns_), snapshot_.stop_ns);
  }
  if (task.limit_ns > 0) {
    const int64_t ends_ns = later(later(task.started_ns, task.limit_ns), snapshot_.stop_ns);
    from_ns = std::min(from_ns, std::max(ends_ns, now_ns_));
  }
  return from_ns;
}

// Reserves nodes of the zone that has enough of them first, or of all zones where none has; of
// these the nodes that become free last, so that as many free nodes as possible remain for other
// tasks.
void Pass::reserve(const PendingGang& pending, Reservation& first) {
  std::vector<std::vector<std::pair<int64_t, uint32_t>>> zones;  // or one for all
  for (const EligibleNodes::Zone& zone : pending.eligible.zones) {
    auto& nodes = pending.needs_span && !zones.empty() ? zones.back() : zones.emplace_back();
    for (uint32_t leaf = zone.begin; leaf < zone.end; leaf++) {
      const EligibleNodes::Leaf& one = pending.eligible.leaves[leaf];
      for (uint32_t at = one.begin; at < one.end; at++) {
        const uint32_t node = pending.eligible.nodes[at];
        const int64_t from_ns = available_ns(node, pending.level);
        if (pool_.state(node).use != NodeUse::out_of_service) nodes.emplace_back(from_ns, node);
      }
    }
  }
  const std::vector<std::pair<int64_t, uint32_t>>* best = nullptr;
  for (auto& zone : zones) {
    if (zone.size() < pending.count) continue;
    std::ranges::sort(zone);
    const int64_t from_ns = zone[pending.count - 1].first;
    if (from_ns >= first.from_ns) continue;
    first.from_ns = from_ns;
    best = &zone;
  }
  if (best == nullptr) {  // no estimate: reserve all eligible nodes
    for (const uint32_t node : pending.eligible.nodes) pool_.reserve(node);
    return;
  }
  size_t end = pending.count;
  while (end < best->size() && (*best)[end].first <= first.from_ns) end++;
  for (size_t i = end - pending.count; i < end; i++) pool_.reserve((*best)[i].second);
}

}  // namespace

std::string_view wait_reason_name(WaitReason reason) {
  return kWaitReasons[static_cast<size_t>(reason)];
}

SchedulingDecision decide(const ClusterSnapshot& snapshot, int64_t now_ns) {
  return Pass(snapshot, now_ns).run();
}

}  // namespace ff::scheduler

// scheduler_state_placement.cc: the snapshot for scheduling passes, their results, and the orders
// for agents.
#include <algorithm>

#include "ops/scheduler/scheduler_state.h"
#include "platform/base/check.h"

namespace ff::scheduler {

bool SchedulerState::is_usable(const std::string& name, Now now) const {
  const wire::Node& node = nodes_.at(name);
  return is_present(name, now) && !node.drained() && !node.drained_by_verdict() &&
         !is_validating(name);
}

ClusterSnapshot SchedulerState::snapshot(Now now, std::vector<uint64_t>& tasks,
                                         std::vector<std::string>& nodes) const {
  ClusterSnapshot snapshot;
  snapshot.stop_ns = timeouts_.ack_ns + timeouts_.save_ns + timeouts_.term_ns;
  std::map<std::string_view, uint32_t> node_index;
  for (const auto& [name, node] : nodes_) {
    SnapshotNode one{.partition = interner_.id(node.group()),
                     .zone = interner_.id(node.zone()),
                     .leaf = interner_.id(node.zone() + "\n" + node.leaf())};
    for (const std::string& label : node.marks()) one.labels.push_back(interner_.id(label));
    std::ranges::sort(one.labels);
    one.usable = is_usable(name, now);
    node_index[name] = static_cast<uint32_t>(nodes.size());
    nodes.push_back(name);
    snapshot.nodes.push_back(std::move(one));
  }
  std::set<uint32_t> users, partitions;
  for (const uint64_t id : unfinished_) {
    const wire::Task& task = tasks_.at(id);
    if (phase_of(task) == TaskPhase::suspended) continue;
    const wire::Spec& spec = task.spec();
    Gang gang{.order = id, .user = interner_.id(task.owner().name())};
    gang.request = {.nodes = spec.nodes(), .partition = interner_.id(spec.group())};
    if (!spec.zone().empty()) gang.request.zone = interner_.id(spec.zone());
    for (const std::string& label : spec.marks())
      gang.request.labels.push_back(interner_.id(label));
    std::ranges::sort(gang.request.labels);
    gang.level = spec.has_priority() ? priority_level(spec.priority()) : std::nullopt;
    gang.limit_ns = spec.limit();
    gang.min_run_ns = spec.min_run();
    if (const auto ready = ready_ns_.find(id); ready != ready_ns_.end()) {
      gang.ready_ns = ready->second;
    }
    const auto run_state = runtimes_.find(id);
    if (run_state != runtimes_.end()) {
      const wire::Attempt& current = attempt(task);
      gang.phase = phase_of(task) == TaskPhase::stopping ? GangPhase::stopping : GangPhase::running;
      gang.charged_level = static_cast<PriorityLevel>(current.level());
      gang.started_ns = run_state->second.placed_ns;
      gang.saved_ns = std::max(run_state->second.saved_ns, run_state->second.placed_ns);
      for (const std::string& name : current.nodes()) {
        const uint32_t node = node_index.at(name);
        gang.nodes.push_back(node);
        snapshot.nodes[node].task = static_cast<uint32_t>(tasks.size());
      }
    }
    users.insert(gang.user);
    partitions.insert(gang.request.partition);
    tasks.push_back(id);
    snapshot.tasks.push_back(std::move(gang));
  }
  // A quota of the user itself precedes the quota for all users.
  for (const auto& [key, quota] : quotas_) {
    const uint32_t partition = interner_.id(quota.group());
    const PriorityLevel level = *priority_level(quota.priority());
    if (quota.user() != "*") {
      snapshot.quotas.set(interner_.id(quota.user()), partition, level, quota.nodes());
      continue;
    }
    for (const uint32_t user : users) {
      wire::Quota own = quota;
      own.set_user(interner_.text(user));
      if (!quotas_.contains(quota_key(own)))
        snapshot.quotas.set(user, partition, level, quota.nodes());
    }
  }
  return snapshot;
}

void SchedulerState::run_pass(Now now) {
  passed_ns_ = now.steady_ns;
  std::vector<uint64_t> tasks;
  std::vector<std::string> nodes;
  const SchedulingDecision decision = decide(snapshot(now, tasks, nodes), now.steady_ns);
  waits_.clear();
  next_pass_ns_ = kNever;
  std::erase_if(ready_ns_, [&](const auto& one) { return one.second <= now.steady_ns; });
  for (const auto& [id, ready_ns] : ready_ns_) next_pass_ns_ = std::min(next_pass_ns_, ready_ns);
  for (const TaskWait& wait : decision.waits) {
    wire::Waiting& waiting = waits_[tasks[wait.task]];
    waiting.set_why(static_cast<uint32_t>(wait.reason));
    if (wait.other != kNoIndex) waiting.set_other(tasks[wait.other]);
    if (wait.expected_ns != kNever) {
      waiting.set_expected(now.wall_ns + wait.expected_ns - now.steady_ns);
      // A minimum run time or time limit of another task ends then.
      if (wait.expected_ns > now.steady_ns)
        next_pass_ns_ = std::min(next_pass_ns_, wait.expected_ns);
    }
    waiting.set_missing(wait.missing);
    if (wait.quota) waiting.set_quota(*wait.quota);
    if (wait.reason == WaitReason::nodes_unavailable) {
      waiting.set_validating(validating_for(tasks_.at(tasks[wait.task]).spec()));
    }
  }
  for (const Preemption& one : decision.preemptions) {
    wire::Task& task = tasks_.at(tasks[one.task]);
    ask_to_stop(task, StopReason::preempted, fmt::format("for task {}", tasks[one.for_task]), now);
    attempt(task).set_stop_for(tasks[one.for_task]);
  }
  for (const TaskStart& start : decision.starts)
    start_attempt(tasks_.at(tasks[start.task]), start, nodes, now);
  needs_pass_ = false;  // its own changes need no further pass
}

void SchedulerState::start_attempt(wire::Task& task, const TaskStart& start,
                                   const std::vector<std::string>& nodes, Now now) {
  FF_CHECK(phase_of(task) == TaskPhase::queued);
  task.set_attempts_made(task.attempts_made() + 1);
  wire::Attempt& current = *task.add_attempts();
  current.set_number(task.attempts_made());
  current.set_level(start.level);
  current.set_placed(now.wall_ns);
  current.set_nodes_count(static_cast<uint32_t>(start.nodes.size()));
  AttemptRuntime& run_state = runtimes_[task.id()];
  run_state = {};
  run_state.placed_ns = now.steady_ns;
  for (const uint32_t node : start.nodes) {
    current.add_nodes(nodes[node]);
    run_state.parts[nodes[node]] = {};
    NodeRuntime& runtime = node_runtimes_.at(nodes[node]);
    FF_CHECK(runtime.task == 0);
    runtime.task = task.id();
  }
  task.set_phase(static_cast<uint32_t>(TaskPhase::preparing));
  change(task);
  order(task);
}

// The record of a finished task does not change any more, and so neither does its size.
void SchedulerState::add_finished(const wire::Task& task) {
  finished_.emplace(task.finished(), task.id());
  history_.add({.uid = task.owner().uid(),
                .ended_ns = task.finished(),
                .key = task.id(),
                .bytes = record_bytes(task)});
}

void SchedulerState::drop_finished(const KeptRecords<uint64_t>::Record& record) {
  history_.remove(record);
  finished_.erase({record.ended_ns, record.key});
  changed_.tasks.erase(record.key);
  changed_.dropped.emplace(record.ended_ns, record.key);
  tasks_.erase(record.key);
}

// The task with the newest id stays, so that the id is never reused.
void SchedulerState::drop_oldest_finished() {
  using Measure = KeptRecords<uint64_t>::Measure;
  std::optional<KeptRecords<uint64_t>::Record> newest;
  for (;;) {
    std::optional<KeptRecords<uint64_t>::Record> next;
    const size_t count = history_.count() + (newest ? 1 : 0);
    const uint64_t bytes = history_.bytes() + (newest ? newest->bytes : 0);
    if (count > timeouts_.max_finished_tasks) {
      next = history_.oldest_of_largest(Measure::records);
    } else if (bytes > history_bytes_max(timeouts_.max_finished_tasks)) {
      next = history_.oldest_of_largest(Measure::bytes);
    }
    if (!next) break;
    if (next->key + 1 == next_id_) {
      newest = next;  // set aside, until the others are dropped
      history_.remove(*next);
    } else {
      drop_finished(*next);
    }
  }
  if (newest) history_.add(*newest);
}

int64_t SchedulerState::tick(Now now) {
  drop_oldest_finished();
  std::vector<uint64_t> with_nodes;
  for (const auto& [id, run_state] : runtimes_) with_nodes.push_back(id);
  for (const uint64_t id : with_nodes) advance(tasks_.at(id), now);
  int64_t next_ns = kNever;
  for (const auto& [name, runtime] : node_runtimes_) {
    // No event marks the time at which a node becomes unresponsive.
    const int64_t falls_ns = runtime.reported_ns + unresponsive_ns();
    if (!runtime.reported) continue;
    if (falls_ns > now.steady_ns) {
      next_ns = std::min(next_ns, falls_ns);
    } else if (falls_ns > passed_ns_) {
      needs_pass_ = true;
    }
  }
  if (needs_pass_ || next_pass_ns_ <= now.steady_ns) run_pass(now);
  next_ns = std::min({next_ns, next_pass_ns_, schedule_validation(now)});
  for (const auto& [id, run_state] : runtimes_) {
    next_ns = std::min(next_ns, next_deadline(tasks_.at(id), run_state));
  }
  return next_ns;
}

std::vector<wire::Order> SchedulerState::orders(const std::string& name) const {
  std::vector<wire::Order> orders;
  const auto runtime = node_runtimes_.find(name);
  if (runtime == node_runtimes_.end()) return orders;
  for (const auto& [orphan, runs] : runtime->second.orphans) {
    wire::Order& order = orders.emplace_back();
    order.set_task(orphan.first);
    order.set_attempt(orphan.second);
    order.set_action(static_cast<uint32_t>(runs ? OrderAction::kill : OrderAction::clean_up));
  }
  const auto found = runtimes_.find(runtime->second.task);
  if (runtime->second.task == 0 || found == runtimes_.end()) return orders;
  const wire::Task& task = tasks_.at(runtime->second.task);
  const AttemptRuntime& run_state = found->second;
  const wire::Attempt& current = attempt(task);
  wire::Order& order = orders.emplace_back();
  order.set_task(task.id());
  order.set_attempt(current.number());
  *order.mutable_owner() = task.owner();
  *order.mutable_spec() = task.spec();
  const auto place = std::ranges::find(current.nodes(), name);
  order.set_node_rank(static_cast<uint32_t>(place - current.nodes().begin()));
  order.set_first_address(nodes_.at(current.nodes(0)).address());
  order.set_port(current.port());
  order.set_life_state(task.life_state());
  OrderAction action = OrderAction::prepare;
  if (phase_of(task) == TaskPhase::running) action = OrderAction::run;
  if (phase_of(task) == TaskPhase::stopping) {
    action = run_state.killed_ns != 0       ? OrderAction::kill
             : run_state.terminated_ns != 0 ? OrderAction::terminate
                                            : OrderAction::request_stop;
    order.set_stop_why(std::string(stop_reason_name(static_cast<StopReason>(current.stop()))));
    order.set_stop_by(current.asked() + timeouts_.ack_ns + timeouts_.save_ns);
  }
  order.set_action(static_cast<uint32_t>(action));
  return orders;
}

SchedulerState::Changes SchedulerState::take_changes() { return std::exchange(changed_, {}); }
std::set<std::string> SchedulerState::take_nodes_with_new_orders() {
  return std::exchange(nodes_with_new_orders_, {});
}

const wire::Task* SchedulerState::task(uint64_t id) const {
  const auto found = tasks_.find(id);
  return found == tasks_.end() ? nullptr : &found->second;
}

const wire::Node* SchedulerState::node(const std::string& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::vector<wire::ListedNode> SchedulerState::listed_nodes(Now now) const {
  std::vector<wire::ListedNode> listed;
  for (const auto& [name, node] : nodes_) {
    wire::ListedNode& one = listed.emplace_back();
    *one.mutable_node() = node;
    const auto runtime = node_runtimes_.find(name);
    const bool reported = runtime != node_runtimes_.end() && runtime->second.reported;
    one.set_heard(reported ? now.steady_ns - runtime->second.reported_ns : -1);
    one.set_task(runtime != node_runtimes_.end() ? runtime->second.task : 0);
    one.set_usable(is_usable(name, now));
    one.set_validating(is_validating(name));
  }
  return listed;
}

std::optional<wire::Waiting> SchedulerState::waiting(uint64_t task) const {
  const auto found = waits_.find(task);
  if (found == waits_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ff::scheduler

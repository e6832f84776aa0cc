// scheduler_state.cc: requests of users and reports of agents.
#include "ops/scheduler/scheduler_state.h"

#include <algorithm>
#include <array>
#include <csignal>

#include "platform/base/check.h"
#include "platform/base/text.h"

namespace ff::scheduler {

namespace {

constexpr std::array<std::string_view, 6> kPhases = {"queued",   "preparing", "running",
                                                     "stopping", "suspended", "finished"};
constexpr std::array<std::string_view, 4> kTaskOutcomes = {"none", "succeeded", "failed",
                                                           "stopped"};
constexpr std::array<std::string_view, 11> kStopReasons = {
    "none",      "preempted", "stopped", "suspended",  "limit",  "drained",
    "node_lost", "hang",      "failed",  "unprepared", "restart"};

constexpr size_t kNameMax = 200;
constexpr size_t kArgumentBytesMax = 256 * 1024;  // argv and env together
constexpr uint32_t kNodesPerTaskMax = 100'000;
constexpr uint32_t kProcessesMax = 1024;
constexpr int kWordsMax = 32'768;  // argv and env together
constexpr int kLabelsMax = 100;
constexpr size_t kPathMax = 4096;

bool has_nul(const std::string& text) { return text.find('\0') != text.npos; }

// Checks the command and its environment.
Result<void> check_words(const wire::Spec& spec) {
  if (spec.argv().empty() || spec.argv(0).empty()) {
    return fail(Errc::usage, "a task needs a command");
  }
  if (spec.argv_size() > kWordsMax || spec.env_size() > kWordsMax - spec.argv_size()) {
    return fail(Errc::usage, "the command and its environment have {} words; the maximum is {}",
                int64_t{spec.argv_size()} + spec.env_size(), kWordsMax);
  }
  size_t bytes = 0;
  for (const auto* words : {&spec.argv(), &spec.env()}) {
    for (const std::string& word : *words) {
      bytes += word.size() + 1;
      if (has_nul(word)) return fail(Errc::usage, "an argument or variable contains a NUL byte");
    }
  }
  if (bytes > kArgumentBytesMax) {
    return fail(Errc::usage, "the command and its environment have {} bytes; the maximum is {}",
                bytes, kArgumentBytesMax);
  }
  for (const std::string& one : spec.env()) {
    if (one.find('=') == 0 || one.find('=') == one.npos) {
      return fail(Errc::usage, "'{}' is not NAME=VALUE", printable(one));
    }
  }
  return {};
}

// Every text of a request has a limit: the scheduler stores all of them.
Result<void> check_texts(const wire::Spec& spec) {
  if (spec.name().size() > kNameMax || has_nul(spec.name())) {
    return fail(Errc::usage, "the name of a task has at most {} bytes", kNameMax);
  }
  if (!spec.cwd().starts_with('/') || has_nul(spec.cwd())) {
    return fail(Errc::usage, "the working directory '{}' is not an absolute path",
                printable(spec.cwd()));
  }
  if (spec.cwd().size() > kPathMax) {
    return fail(Errc::usage, "the working directory has {} bytes; the maximum is {}",
                spec.cwd().size(), kPathMax);
  }
  if (spec.group().size() > kNameMax || spec.zone().size() > kNameMax) {
    return fail(Errc::usage, "the name of a partition or zone has at most {} bytes", kNameMax);
  }
  if (spec.marks_size() > kLabelsMax) {
    return fail(Errc::usage, "a task has at most {} labels", kLabelsMax);
  }
  for (const std::string& label : spec.marks()) {
    if (label.size() > kNameMax) {
      return fail(Errc::usage, "a label has at most {} bytes", kNameMax);
    }
  }
  return {};
}

// Checks that the task can be executed and shown in logs.
Result<void> check_spec(const wire::Spec& spec) {
  FF_TRY(check_words(spec));
  FF_TRY(check_texts(spec));
  if (spec.nodes() == 0 || spec.nodes() > kNodesPerTaskMax) {
    return fail(Errc::usage, "{} nodes: must be 1 to {}", spec.nodes(), kNodesPerTaskMax);
  }
  if (spec.processes() == 0 || spec.processes() > kProcessesMax) {
    return fail(Errc::usage, "{} processes per node: must be 1 to {}", spec.processes(),
                kProcessesMax);
  }
  if (spec.has_priority() && !priority_level(spec.priority())) {
    return fail(Errc::usage, "priority {}: must be 50, 40, 30, 20, 10 or 0", spec.priority());
  }
  if (spec.limit() < 0 || spec.min_run() < 0 || spec.hang() < 0 || spec.signal() > 64) {
    return fail(Errc::usage, "a negative time, or an unknown signal");
  }
  return {};
}

}  // namespace

std::string_view task_phase_name(TaskPhase phase) { return kPhases.at(static_cast<size_t>(phase)); }
std::string_view task_outcome_name(TaskOutcome outcome) {
  return kTaskOutcomes.at(static_cast<size_t>(outcome));
}
std::string_view stop_reason_name(StopReason why) {
  return kStopReasons.at(static_cast<size_t>(why));
}

SchedulerState::SchedulerState(std::string id, SchedulerTimeouts timeouts, HealthPolicy health,
                               TaskLimits limits)
    : id_(std::move(id)), timeouts_(timeouts), health_(health), usage_(limits) {}

bool SchedulerState::has_nodes(const wire::Task& task) {
  const TaskPhase phase = phase_of(task);
  return phase == TaskPhase::preparing || phase == TaskPhase::running ||
         phase == TaskPhase::stopping;
}

void SchedulerState::add_unfinished(const wire::Task& task) {
  unfinished_.insert(task.id());
  usage_.add(task);
  if (!task.once().empty()) once_[task.once()] = task.id();
}

void SchedulerState::load(wire::Task task) {
  next_id_ = std::max(next_id_, task.id() + 1);
  const uint64_t id = task.id();
  if (phase_of(task) != TaskPhase::finished) {
    add_unfinished(task);
  } else {
    add_finished(task);
  }
  tasks_[id] = std::move(task);
}

void SchedulerState::load(wire::Node node) {
  const std::string name = node.name();
  nodes_[name] = std::move(node);
}

void SchedulerState::load(wire::Quota quota) {
  const std::string key = quota_key(quota);
  quotas_[key] = std::move(quota);
}

void SchedulerState::begin(Now now) {
  for (const auto& [name, node] : nodes_) node_runtimes_[name].reported_ns = now.steady_ns;
  for (const uint64_t id : unfinished_) {
    wire::Task& task = tasks_.at(id);
    if (const int64_t pause_ns = task.not_before() - now.wall_ns; pause_ns > 0) {
      ready_ns_[id] = now.steady_ns + std::min(pause_ns, timeouts_.pause_ns);
    }
    if (!has_nodes(task)) continue;
    const wire::Attempt& current = attempt(task);
    // The wall clock may have been set back: no stored time is in the future.
    const auto ago = [&](int64_t wall_ns) {
      return wall_ns == 0 ? 0 : now.steady_ns - std::max<int64_t>(0, now.wall_ns - wall_ns);
    };
    AttemptRuntime run_state{.parts = {},
                             .placed_ns = ago(current.placed()),
                             .started_ns = ago(current.started()),
                             .saved_ns = ago(std::max(current.saved(), current.started())),
                             .asked_ns = ago(current.asked()),
                             .acked_ns = ago(current.acked()),
                             .terminated_ns = ago(current.terminated()),
                             .killed_ns = ago(current.killed())};
    for (const std::string& node : current.nodes()) {
      run_state.parts[node] = {};
      node_runtimes_[node].task = id;
    }
    runtimes_[id] = std::move(run_state);
  }
  needs_pass_ = true;
}

void SchedulerState::change(wire::Task& task) {
  changed_.tasks.insert(task.id());
  needs_pass_ = true;
}

void SchedulerState::order(const wire::Task& task) {
  for (const std::string& node : attempt(task).nodes()) nodes_with_new_orders_.insert(node);
}

Result<uint64_t> SchedulerState::submit(wire::SubmitRequest request, SubmittedBy by, Now now) {
  FF_TRY(check_spec(request.spec()));
  if (request.once().size() > kNameMax) return fail(Errc::usage, "the idempotency key is too long");
  if (const auto same = once_.find(request.once()); same != once_.end()) return same->second;
  wire::Task task;
  *task.mutable_owner() = std::move(*request.mutable_owner());
  *task.mutable_spec() = std::move(*request.mutable_spec());
  FF_TRY(usage_.check(task, by));
  const uint64_t id = next_id_++;
  task.set_id(id);
  task.set_once(request.once());
  task.set_submitted(now.wall_ns);
  add_unfinished(task);
  change(task);
  tasks_[id] = std::move(task);
  return id;
}

Result<void> SchedulerState::control(uint64_t id, TaskControl what, Now now) {
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) return fail(Errc::not_found, "there is no task {}", id);
  wire::Task& task = found->second;
  const TaskPhase phase = phase_of(task);
  const auto refused = [&] {
    return fail(Errc::refused, "task {} is {}", id, task_phase_name(phase));
  };
  if (phase == TaskPhase::finished) return refused();
  if (what == TaskControl::resume) {
    if (phase != TaskPhase::suspended) return refused();
    queue_again(task, 0, now);
    return {};
  }
  if (has_nodes(task)) {
    const StopReason why = what == TaskControl::stop ? StopReason::stopped : StopReason::suspended;
    ask_to_stop(task, why, {}, now);
    // It is stopping for another reason: the request of the user takes precedence.
    if (attempt(task).stop() != static_cast<uint32_t>(StopReason::stopped)) {
      attempt(task).set_stop(static_cast<uint32_t>(why));
      change(task);
    }
    return {};
  }
  if (what == TaskControl::stop) {
    finish(task, TaskOutcome::stopped, "stopped before it ran", now);
  } else {
    if (phase == TaskPhase::suspended) return refused();
    task.set_phase(static_cast<uint32_t>(TaskPhase::suspended));
    change(task);
  }
  return {};
}

Result<void> SchedulerState::drain(const std::string& name, bool drained, std::string why,
                                   Now now) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) {
    return fail(Errc::not_found, "there is no node {}", printable(name));
  }
  found->second.set_drained(drained);
  found->second.set_drained_why(drained ? why : std::string());
  // Returning a node by hand overrides the last verdict.
  if (!drained) {
    found->second.set_drained_by_verdict(false);
    found->second.clear_failed();
  }
  changed_.nodes.insert(name);
  needs_pass_ = true;
  const uint64_t id = node_runtimes_[name].task;
  if (drained && id != 0) {
    ask_to_stop(tasks_.at(id), StopReason::drained, "node " + name + " was taken out of service",
                now);
  }
  return {};
}

std::string SchedulerState::quota_key(const wire::Quota& quota) {
  return fmt::format("{}\n{}\n{}", quota.user(), quota.group(), quota.priority());
}

Result<void> SchedulerState::set_quota(const wire::Quota& quota) {
  const auto fits = [](const std::string& word) {
    return !word.empty() && word.size() <= kNameMax && word.find('\n') == word.npos;
  };
  if (!fits(quota.user()) || !fits(quota.group()) || !priority_level(quota.priority())) {
    return fail(Errc::usage, "a quota needs a user, a partition and a priority");
  }
  const std::string key = quota_key(quota);
  quotas_[key] = quota;
  changed_.quotas.insert(key);
  needs_pass_ = true;
  return {};
}

void SchedulerState::remove_quota(const wire::Quota& quota) {
  const std::string key = quota_key(quota);
  if (quotas_.erase(key) == 0) return;
  changed_.quotas.insert(key);
  needs_pass_ = true;
}

Result<void> SchedulerState::apply_report(const wire::SyncRequest& request, Now now) {
  const wire::Node& told = request.node();
  if (told.name().empty() || told.name().size() > kNameMax || told.group().empty()) {
    return fail(Errc::usage, "a node needs a name and a partition");
  }
  if (!request.scheduler().empty() && request.scheduler() != id_) {
    return fail(Errc::refused, "node {} has tasks of another scheduler", printable(told.name()));
  }
  wire::Node& node = nodes_[told.name()];
  wire::Node after = told;
  keep_scheduler_fields(node, after);
  std::ranges::sort(*after.mutable_marks());
  if (after.SerializeAsString() != node.SerializeAsString()) {
    node = std::move(after);
    changed_.nodes.insert(told.name());
    needs_pass_ = true;
  }
  const bool was_usable = is_usable(told.name(), now);
  NodeRuntime& runtime = node_runtimes_[told.name()];
  update_validation(request, now);
  runtime.reported = true;
  runtime.reported_ns = now.steady_ns;
  runtime.boot = request.boot();
  runtime.orphans.clear();
  std::set<uint64_t> held;
  for (const wire::Held& one : request.held()) {
    update_attempt(one, told.name(), now);
    held.insert(one.task());
  }
  // The node does not hold its attempt: it never started it, or has rebooted.
  const auto found = runtimes_.find(runtime.task);
  if (runtime.task != 0 && found != runtimes_.end() && !held.contains(runtime.task)) {
    NodePart& part = found->second.parts[told.name()];
    wire::Task& task = tasks_.at(runtime.task);
    const bool had =
        part.state == NodePart::State::running || part.state == NodePart::State::prepared;
    // Ranks run only if all nodes had prepared the attempt.
    if (had || phase_of(task) == TaskPhase::running) {
      part.state = NodePart::State::ended;
      part.text = "node " + told.name() + " lost the attempt";
      ask_to_stop(task, StopReason::node_lost, part.text, now);
    } else if (phase_of(task) == TaskPhase::stopping) {
      part.state = NodePart::State::ended;
    }
  }
  if (runtime.task != 0) advance(tasks_.at(runtime.task), now);
  if (is_usable(told.name(), now) != was_usable) needs_pass_ = true;
  return {};
}

void SchedulerState::update_attempt(const wire::Held& held, const std::string& node, Now now) {
  const auto found = tasks_.find(held.task());
  const bool is_present = found != tasks_.end() && has_nodes(found->second) &&
                          attempt(found->second).number() == held.attempt() &&
                          runtimes_.at(held.task()).parts.contains(node);
  if (!is_present) {
    const bool runs = std::ranges::any_of(held.ranks(), [](const wire::Rank& rank) {
      return rank.state() == static_cast<uint32_t>(RankState::running);
    });
    node_runtimes_[node].orphans[{held.task(), held.attempt()}] = runs;
    return;
  }
  update_part(found->second, held, node, now);
}

void SchedulerState::update_part(wire::Task& task, const wire::Held& held, const std::string& node,
                                 Now now) {
  AttemptRuntime& run_state = runtimes_.at(task.id());
  NodePart& part = run_state.parts.at(node);
  wire::Attempt& current = attempt(task);
  part.text = held.text();
  part.statuses.clear();
  part.has_lost_rank = false;
  part.silent_ns = INT64_MAX;
  part.most_silent = {};
  bool runs = false;
  for (const wire::Rank& rank : held.ranks()) {
    const auto state = static_cast<RankState>(rank.state());
    if (state == RankState::running) {
      runs = true;
      part.silent_ns = std::min(part.silent_ns, rank.silent());
      if (rank.silent() > part.most_silent.silent_ns) {
        part.most_silent = {.local = rank.local(), .silent_ns = rank.silent(), .step = {}};
        if (rank.has_step()) part.most_silent.step = rank.step();
      }
    } else if (state != RankState::waiting) {
      // A rank with unknown exit status counts as failed.
      part.statuses[rank.local()] = state == RankState::lost ? SIGKILL : rank.status();
      part.has_lost_rank = part.has_lost_rank || state == RankState::lost;
      if (!rank.text().empty()) part.text = rank.text();
    }
  }
  const bool all_ended =
      !held.ranks().empty() && part.statuses.size() == static_cast<size_t>(held.ranks_size());
  part.state = runs              ? NodePart::State::running
               : all_ended       ? NodePart::State::ended
               : held.prepared() ? NodePart::State::prepared
                                 : NodePart::State::waiting;
  if (held.port() != 0 && current.nodes(0) == node && current.port() != held.port()) {
    current.set_port(held.port());
    change(task);
  }
  if (held.acked() && run_state.asked_ns != 0 && run_state.acked_ns == 0) {
    run_state.acked_ns = now.steady_ns;
    current.set_acked(now.wall_ns);
    change(task);
  }
  if (held.has_saved_step() &&
      (!current.has_saved_step() || held.saved_step() != current.saved_step())) {
    current.set_saved_step(held.saved_step());
    current.set_saved(now.wall_ns);
    run_state.saved_ns = now.steady_ns;
    change(task);
  }
  if (held.has_life_state() && held.life_state() != task.life_state()) {
    task.set_life_state(held.life_state());
    change(task);
  }
}

}  // namespace ff::scheduler

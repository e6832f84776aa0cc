// scheduler_state_attempts.cc: the life of an attempt, from prepare to the exit of its last rank.
#include <sys/wait.h>

#include <algorithm>

#include "ops/scheduler/scheduler_state.h"
#include "platform/base/check.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

// After the failure of a rank the other ranks get this time to exit before SIGTERM.
constexpr int64_t kPeersExitNs = 5 * kSecond;
constexpr int kAttemptsMax = 20;
constexpr int kOldNodesMax = 64;  // names of nodes, of an ended attempt

void set_phase(wire::Task& task, TaskPhase phase) { task.set_phase(static_cast<uint32_t>(phase)); }

std::string exit_text(uint32_t rank, int32_t status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("rank {} was killed by signal {}", rank, WTERMSIG(status));
  }
  return fmt::format("rank {} exited with {}", rank, WEXITSTATUS(status));
}

}  // namespace

// The node was silent for so long that no rank can be left: its agent kills them when the lease
// expires, which takes no longer than a stop.
bool SchedulerState::lease_is_over(const std::string& node, Now now) const {
  const auto runtime = node_runtimes_.find(node);
  FF_CHECK(runtime != node_runtimes_.end());
  return now.steady_ns - runtime->second.reported_ns >= timeouts_.lease_ns + timeouts_.term_ns;
}

bool SchedulerState::all_ended(const wire::Task& task, Now now) const {
  return std::ranges::all_of(runtimes_.at(task.id()).parts, [&](const auto& part) {
    return part.second.state == NodePart::State::ended || lease_is_over(part.first, now);
  });
}

// The first failed rank and its wait status.
std::optional<std::pair<uint32_t, int32_t>> SchedulerState::failed_rank(
    const wire::Task& task) const {
  const AttemptRuntime& run_state = runtimes_.at(task.id());
  const wire::Attempt& current = attempt(task);
  for (int node = 0; node < current.nodes_size(); node++) {
    for (const auto& [local, status] : run_state.parts.at(current.nodes(node)).statuses) {
      const uint32_t rank = static_cast<uint32_t>(node) * task.spec().processes() + local;
      if (status != 0) return std::pair(rank, status);
    }
  }
  return std::nullopt;
}

std::string SchedulerState::hang_text(const wire::Task& task, Now now) const {
  const AttemptRuntime& run_state = runtimes_.at(task.id());
  const int64_t max_ns = task.spec().hang();
  if (max_ns == 0 || now.steady_ns - run_state.started_ns < max_ns) return {};
  const wire::Attempt& current = attempt(task);
  int64_t silent_ns = INT64_MAX, first_ns = -1;
  std::string first;
  for (int node = 0; node < current.nodes_size(); node++) {
    const NodePart& part = run_state.parts.at(current.nodes(node));
    silent_ns = std::min(silent_ns, part.silent_ns);
    if (part.most_silent.silent_ns <= first_ns) continue;
    first_ns = part.most_silent.silent_ns;
    first = fmt::format(
        "rank {} on node {} was the first to become silent{}",
        static_cast<uint32_t>(node) * task.spec().processes() + part.most_silent.local,
        current.nodes(node),
        part.most_silent.step ? fmt::format(", at step {}", *part.most_silent.step) : "");
  }
  if (silent_ns == INT64_MAX || silent_ns < max_ns) return {};
  return fmt::format("no rank has printed or reported a step for {}; {}",
                     format_duration(silent_ns), first);
}

void SchedulerState::advance(wire::Task& task, Now now) {
  const TaskPhase phase = phase_of(task);
  if (phase == TaskPhase::preparing) advance_preparing(task, now);
  if (phase == TaskPhase::running) advance_running(task, now);
  if (phase_of(task) == TaskPhase::stopping) advance_stopping(task, now);
}

void SchedulerState::advance_preparing(wire::Task& task, Now now) {
  AttemptRuntime& run_state = runtimes_.at(task.id());
  wire::Attempt& current = attempt(task);
  bool ready = current.port() != 0;
  std::string_view slow = current.nodes(0);
  for (const auto& [node, part] : run_state.parts) {
    if (!part.text.empty()) {
      return ask_to_stop(task, StopReason::unprepared, node + ": " + part.text, now);
    }
    if (lease_is_over(node, now)) {
      return ask_to_stop(task, StopReason::node_lost, "node " + node + " does not respond", now);
    }
    if (part.state == NodePart::State::prepared) continue;
    ready = false;
    slow = node;
  }
  if (ready) {
    current.set_started(now.wall_ns);
    run_state.started_ns = run_state.saved_ns = now.steady_ns;
    if (task.waited() == 0) task.set_waited(std::max<int64_t>(1, now.wall_ns - task.submitted()));
    set_phase(task, TaskPhase::running);
    change(task);
    return order(task);
  }
  if (now.steady_ns - run_state.placed_ns < timeouts_.prepare_ns) return;
  ask_to_stop(task, StopReason::node_lost,
              fmt::format("node {} did not prepare the attempt in time", slow), now);
}

void SchedulerState::advance_running(wire::Task& task, Now now) {
  AttemptRuntime& run_state = runtimes_.at(task.id());
  wire::Attempt& current = attempt(task);
  for (const auto& [node, part] : run_state.parts) {
    if (!part.has_lost_rank) continue;
    return ask_to_stop(task, StopReason::node_lost,
                       fmt::format("node {} lost a rank: {}", node, part.text), now);
  }
  if (const auto failed = failed_rank(task)) {
    current.set_status_rank(failed->first);
    current.set_status(failed->second);
    const uint32_t asks = task.spec().restart_on();
    const bool is_asking = asks != 0 && WIFEXITED(failed->second) &&
                           static_cast<uint32_t>(WEXITSTATUS(failed->second)) == asks;
    return ask_to_stop(task, is_asking ? StopReason::restart : StopReason::failed,
                       exit_text(failed->first, failed->second), now);
  }
  for (const auto& [node, part] : run_state.parts) {
    if (lease_is_over(node, now)) {
      return ask_to_stop(task, StopReason::node_lost, "node " + node + " does not respond", now);
    }
  }
  if (all_ended(task, now)) return end_attempt(task, now);
  if (task.spec().limit() > 0 && now.steady_ns - run_state.started_ns >= task.spec().limit()) {
    return ask_to_stop(task, StopReason::limit, "the time limit has passed", now);
  }
  if (auto how = hang_text(task, now); !how.empty()) {
    ask_to_stop(task, StopReason::hang, std::move(how), now);
  }
}

// A task is asked to stop once; later reasons change nothing.
void SchedulerState::ask_to_stop(wire::Task& task, StopReason why, std::string text, Now now) {
  if (phase_of(task) == TaskPhase::stopping) return;
  wire::Attempt& current = attempt(task);
  AttemptRuntime& run_state = runtimes_.at(task.id());
  current.set_stop(static_cast<uint32_t>(why));
  current.set_stop_text(std::move(text));
  current.set_asked(now.wall_ns);
  run_state.asked_ns = now.steady_ns;
  if (phase_of(task) == TaskPhase::preparing) {
    // No rank runs, or the order to run was sent a moment ago.
    run_state.terminated_ns = now.steady_ns;
    current.set_terminated(now.wall_ns);
  }
  set_phase(task, TaskPhase::stopping);
  change(task);
  order(task);
}

// After a failure or hang the scheduler does not wait for an acknowledgement.
int64_t SchedulerState::terminate_at_ns(const wire::Attempt& current,
                                        const AttemptRuntime& run_state) const {
  const StopReason why = stop_reason_of(current);
  if (why == StopReason::failed || why == StopReason::hang || why == StopReason::restart) {
    return run_state.asked_ns + kPeersExitNs;
  }
  return run_state.acked_ns != 0 ? run_state.acked_ns + timeouts_.save_ns
                                 : run_state.asked_ns + timeouts_.ack_ns;
}

void SchedulerState::advance_stopping(wire::Task& task, Now now) {
  AttemptRuntime& run_state = runtimes_.at(task.id());
  wire::Attempt& current = attempt(task);
  if (all_ended(task, now)) return end_attempt(task, now);
  if (run_state.terminated_ns == 0 && now.steady_ns >= terminate_at_ns(current, run_state)) {
    run_state.terminated_ns = now.steady_ns;
    current.set_terminated(now.wall_ns);
    change(task);
    order(task);
  }
  if (run_state.terminated_ns != 0 && run_state.killed_ns == 0 &&
      now.steady_ns - run_state.terminated_ns >= timeouts_.term_ns) {
    run_state.killed_ns = now.steady_ns;
    current.set_killed(now.wall_ns);
    change(task);
    order(task);
  }
}

// No rank of the attempt is left on any node.
void SchedulerState::end_attempt(wire::Task& task, Now now) {
  wire::Attempt& current = attempt(task);
  const AttemptRuntime run_state = std::move(runtimes_.extract(task.id()).mapped());
  const auto nodes = static_cast<int64_t>(current.nodes_size());
  current.set_ended(now.wall_ns);
  order(task);
  for (const std::string& node : current.nodes()) node_runtimes_[node].task = 0;
  const bool ran = current.started() != 0;
  bool all_well = ran;
  for (const auto& [node, part] : run_state.parts) {
    all_well = all_well && part.statuses.size() == task.spec().processes() &&
               std::ranges::all_of(part.statuses, [](const auto& one) { return one.second == 0; });
  }
  if (ran) {
    task.set_used(task.used() + nodes * (now.steady_ns - run_state.started_ns));
    // Work since the last save is lost, unless the task succeeded.
    const int64_t until_ns = run_state.asked_ns != 0 ? run_state.asked_ns : now.steady_ns;
    if (!all_well || run_state.acked_ns != 0) {
      task.set_lost(task.lost() + nodes * std::max<int64_t>(0, until_ns - run_state.saved_ns));
    }
  }
  const StopReason why = stop_reason_of(current);
  change(task);
  // All ranks exited with 0 and none was saving for a preemption: the task is done.
  if (all_well && run_state.acked_ns == 0) return finish(task, TaskOutcome::succeeded, {}, now);
  const std::string text = current.stop_text();
  switch (why) {
    case StopReason::stopped: return finish(task, TaskOutcome::stopped, "stopped by its user", now);
    case StopReason::limit: return finish(task, TaskOutcome::stopped, text, now);
    case StopReason::suspended: set_phase(task, TaskPhase::suspended); return;
    case StopReason::preempted:
    case StopReason::drained: return queue_again(task, 0, now);
    // With a delay, so that a repeating cause does not cause a busy loop.
    case StopReason::restart:
    case StopReason::node_lost: return queue_again(task, timeouts_.pause_ns, now);
    case StopReason::unprepared:
    case StopReason::hang:
    case StopReason::failed:
    case StopReason::none: break;
  }
  task.set_failures(task.failures() + 1);
  if (task.failures() > task.spec().restarts()) return finish(task, TaskOutcome::failed, text, now);
  queue_again(task, timeouts_.pause_ns, now);
}

void SchedulerState::finish(wire::Task& task, TaskOutcome outcome, std::string text, Now now) {
  set_phase(task, TaskPhase::finished);
  task.set_outcome(static_cast<uint32_t>(outcome));
  task.set_outcome_text(std::move(text));
  task.set_finished(now.wall_ns);
  unfinished_.erase(task.id());
  usage_.remove(task);
  once_.erase(task.once());
  waits_.erase(task.id());
  ready_ns_.erase(task.id());
  add_finished(task);
  change(task);
}

void SchedulerState::queue_again(wire::Task& task, int64_t pause_ns, Now now) {
  set_phase(task, TaskPhase::queued);
  task.set_not_before(pause_ns == 0 ? 0 : now.wall_ns + pause_ns);
  if (pause_ns > 0) ready_ns_[task.id()] = now.steady_ns + pause_ns;
  if (task.attempts_size() > 0) {
    auto& nodes = *attempt(task).mutable_nodes();
    if (nodes.size() > kOldNodesMax)
      nodes.DeleteSubrange(kOldNodesMax, nodes.size() - kOldNodesMax);
  }
  while (task.attempts_size() > kAttemptsMax) task.mutable_attempts()->DeleteSubrange(0, 1);
  change(task);
}

int64_t SchedulerState::next_deadline(const wire::Task& task,
                                      const AttemptRuntime& run_state) const {
  const wire::Attempt& current = attempt(task);
  int64_t next_ns = kNever;
  const auto at = [&](int64_t time_ns) { next_ns = std::min(next_ns, time_ns); };
  switch (phase_of(task)) {
    case TaskPhase::preparing: at(run_state.placed_ns + timeouts_.prepare_ns); break;
    case TaskPhase::running:
      if (task.spec().limit() > 0) at(run_state.started_ns + task.spec().limit());
      if (task.spec().hang() > 0) at(run_state.started_ns + task.spec().hang());
      break;
    case TaskPhase::stopping:
      if (run_state.terminated_ns == 0) {
        at(terminate_at_ns(current, run_state));
      } else if (run_state.killed_ns == 0) {
        at(run_state.terminated_ns + timeouts_.term_ns);
      }
      break;
    case TaskPhase::queued:
    case TaskPhase::suspended:
    case TaskPhase::finished: break;
  }
  for (const auto& [node, part] : run_state.parts) {
    if (part.state != NodePart::State::ended) {
      at(node_runtimes_.at(node).reported_ns + timeouts_.lease_ns + timeouts_.term_ns);
    }
  }
  return next_ns;
}

}  // namespace ff::scheduler

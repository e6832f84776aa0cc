// format.cc: the sentences of explain, and texts of lists.
#include "cmd/schedule/format.h"

#include <sys/wait.h>

#include <algorithm>
#include <string_view>

#include "ops/scheduler/scheduler_state.h"
#include "ops/validate/check.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using scheduler::StopReason;
using scheduler::TaskOutcome;
using scheduler::TaskPhase;
using scheduler::WaitReason;
using scheduler::wire::Attempt;
using scheduler::wire::ListedTask;
using scheduler::wire::Spec;

std::string nodes_text(uint64_t count) {
  return fmt::format("{} {}", count, count == 1 ? "node" : "nodes");
}

// "in 5m, at 2026-…".
std::string when_text(int64_t expected_ns, int64_t now_ns) {
  if (expected_ns <= now_ns) return "at any moment";
  return fmt::format("in {}, at {} at the latest", format_duration(expected_ns - now_ns),
                     format_time(expected_ns));
}

// "its node is in use", "3 of its 8 nodes are in use".
std::string in_use_text(uint32_t missing, uint32_t nodes) {
  if (missing == 0) return fmt::format("no zone has {} free", nodes_text(nodes));
  if (nodes == 1) return "its node is in use";
  if (missing == nodes) return fmt::format("its {} nodes are in use", nodes);
  return fmt::format("{} of its {} nodes {} in use", missing, nodes, missing == 1 ? "is" : "are");
}

// The end of a sentence about tasks that must end first.
std::string estimate_text(int64_t expected_ns, int64_t now_ns) {
  if (expected_ns == 0) return "with no time limit, so there is no estimate";
  return fmt::format("and expected to be free {}", when_text(expected_ns, now_ns));
}

std::string quota_sentence(const ListedTask& listed) {
  const scheduler::wire::Task& task = listed.task();
  const Spec& spec = task.spec();
  const std::string level = spec.has_priority() ? fmt::format("at priority {}", spec.priority())
                                                : std::string("at any priority");
  const std::string where = fmt::format("in partition {} {}", spec.group(), level);
  const auto& waiting = listed.waiting();
  if (waiting.has_quota() && waiting.quota() < spec.nodes()) {
    return fmt::format(
        "cannot start: it asks for {}, but the quota of {} {} is {}; stop the task and submit it "
        "with fewer nodes, or have an operator raise the quota ('ff schedule quota')",
        nodes_text(spec.nodes()), task.owner().name(), where, nodes_text(waiting.quota()));
  }
  return fmt::format(
      "waits for the quota of {} {}: other tasks of this user must free {} first, or an operator "
      "must raise the quota by that number ('ff schedule quota')",
      task.owner().name(), where, nodes_text(waiting.missing()));
}

std::string validating_text(uint32_t nodes) {
  return nodes == 0 ? "" : fmt::format("; {} run checks and return afterwards", nodes_text(nodes));
}

std::string waiting_sentence(const ListedTask& listed, int64_t now_ns) {
  const scheduler::wire::Task& task = listed.task();
  const Spec& spec = task.spec();
  const auto& waiting = listed.waiting();
  const uint32_t missing = waiting.missing();
  const uint32_t there = spec.nodes() - std::min(missing, spec.nodes());
  switch (static_cast<WaitReason>(waiting.why())) {
    case WaitReason::begin_time:
      return fmt::format("has failed and waits before its restart {}",
                         when_text(waiting.expected(), now_ns));
    case WaitReason::quota: return quota_sentence(listed);
    case WaitReason::unsatisfiable:
      return fmt::format(
          "cannot start: it asks for {}, but the cluster has only {}; add {}, or stop the task and "
          "submit it with fewer nodes",
          demand_text(spec), there, nodes_text(missing));
    case WaitReason::nodes_unavailable:
      return fmt::format(
          "waits for nodes to come back: it asks for {}, but only {} of them are alive and in "
          "service; {} must return ('ff schedule nodes' lists them){}",
          demand_text(spec), there, nodes_text(missing), validating_text(waiting.validating()));
    case WaitReason::releasing:
      return fmt::format(
          "is about to start: the scheduler has asked the tasks on its nodes to save and exit, and "
          "expects those nodes to be free {}",
          when_text(waiting.expected(), now_ns));
    case WaitReason::zone_span:
      return fmt::format(
          "waits for task {}: both need more nodes than one zone has, and only one task at a time "
          "may span zones",
          waiting.other());
    case WaitReason::resources:
      return fmt::format("is first in the queue of partition {}: {}, {}", spec.group(),
                         in_use_text(missing, spec.nodes()),
                         estimate_text(waiting.expected(), now_ns));
    case WaitReason::priority:
      return fmt::format(
          "waits behind task {}, which is first in the queue of partition {}: {} or reserved for "
          "task {}",
          waiting.other(), spec.group(), in_use_text(missing, spec.nodes()), waiting.other());
  }
  return "waits for a reason that this version of ff does not know; the scheduler is newer";
}

std::string stopping_sentence(const Attempt& current) {
  std::string why = "its end";
  switch (static_cast<StopReason>(current.stop())) {
    case StopReason::none: break;
    case StopReason::preempted: why = fmt::format("task {} preempts it", current.stop_for()); break;
    case StopReason::stopped: why = "its user has stopped it"; break;
    case StopReason::suspended: why = "its user has suspended it"; break;
    default: why = current.stop_text();
  }
  std::string where =
      "the scheduler has asked it to save and exit, and it has not acknowledged yet";
  if (current.killed() != 0) {
    where = "its nodes have sent SIGKILL, and not all have reported its end";
  } else if (current.terminated() != 0) {
    where = "its nodes have sent SIGTERM, and will send SIGKILL";
  } else if (current.acked() != 0) {
    where = "it has acknowledged and is saving";
  }
  return fmt::format("is stopping, because {}: {}", why, where);
}

std::string finished_sentence(const scheduler::wire::Task& task) {
  const std::string when = format_time(task.finished());
  const std::string& text = task.outcome_text();
  switch (static_cast<TaskOutcome>(task.outcome())) {
    case TaskOutcome::succeeded: return fmt::format("succeeded at {}", when);
    case TaskOutcome::failed: return fmt::format("failed at {}: {}", when, text);
    case TaskOutcome::stopped: return fmt::format("was stopped at {}: {}", when, text);
    case TaskOutcome::none: break;
  }
  return fmt::format("finished at {}", when);
}

std::string phase_sentence(const ListedTask& listed, int64_t now_ns) {
  const scheduler::wire::Task& task = listed.task();
  const Attempt none;
  const Attempt& current =
      scheduler::last_attempt(task) == nullptr ? none : *scheduler::last_attempt(task);
  switch (scheduler::phase_of(task)) {
    case TaskPhase::queued:
      if (listed.has_waiting()) return waiting_sentence(listed, now_ns);
      return "has just been queued; the scheduler considers it next";
    case TaskPhase::preparing:
      return fmt::format("has {} and starts when all of them are ready ({} so far)",
                         nodes_text(static_cast<uint64_t>(current.nodes_size())),
                         format_duration(std::max<int64_t>(0, now_ns - current.placed())));
    case TaskPhase::running:
      return fmt::format("has run on {} for {}",
                         nodes_text(static_cast<uint64_t>(current.nodes_size())),
                         format_duration(std::max<int64_t>(0, now_ns - current.started())));
    case TaskPhase::stopping: return stopping_sentence(current);
    case TaskPhase::suspended:
      return fmt::format("is suspended until 'ff schedule resume {}' puts it back into the queue",
                         task.id());
    case TaskPhase::finished: return finished_sentence(task);
  }
  return "is in a state that this version of ff does not know; the scheduler is newer";
}

}  // namespace

Color task_color(const scheduler::wire::Task& task) {
  switch (scheduler::phase_of(task)) {
    case TaskPhase::running: return Color::green;
    case TaskPhase::stopping: return Color::yellow;
    case TaskPhase::suspended: return Color::dim;
    case TaskPhase::finished:
      return static_cast<TaskOutcome>(task.outcome()) == TaskOutcome::failed ? Color::red
                                                                             : Color::none;
    default: return Color::none;
  }
}

std::string demand_text(const Spec& spec) {
  std::string text = fmt::format("{} of partition {}", nodes_text(spec.nodes()), spec.group());
  if (!spec.zone().empty()) text += " in zone " + spec.zone();
  if (!spec.marks().empty()) {
    text += fmt::format(" with {} {}", spec.marks_size() == 1 ? "label" : "labels",
                        fmt::join(spec.marks(), " and "));
  }
  return text;
}

std::string explanation(const ListedTask& listed, int64_t now_wall_ns) {
  return fmt::format("Task {} {}.", listed.task().id(), phase_sentence(listed, now_wall_ns));
}

std::string verdict_word(const scheduler::wire::Node& node) {
  if (node.validated() == 0 || node.verdict() > static_cast<uint32_t>(validate::Verdict::fail)) {
    return "";
  }
  return std::string(validate::verdict_name(static_cast<validate::Verdict>(node.verdict())));
}

std::string validated_text(const scheduler::wire::Node& node, int64_t now_wall_ns) {
  if (node.validated() == 0) return "never";
  const std::string ago = format_duration(std::max<int64_t>(0, now_wall_ns - node.validated()));
  return fmt::format("{} ago: {}{}{}", ago, verdict_word(node),
                     node.verdict_text().empty() ? "" : ", ", node.verdict_text());
}

double node_hours(int64_t node_ns) {
  return static_cast<double>(node_ns) / static_cast<double>(3600 * kSecond);
}

int shell_code(int32_t status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace ff::cmd

// state_text.cc: short texts of lists; cmd/schedule/format.cc has the sentences of explain.
#include "ops/scheduler/state_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/scheduler/scheduler_state.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::scheduler {

namespace {

constexpr std::array<std::string_view, kNodeStateCount> kNodeStates = {
    "free", "busy", "clearing", "validating", "silent", "not heard of", "drained"};

}  // namespace

const wire::Attempt* last_attempt(const wire::Task& task) {
  return task.attempts().empty() ? nullptr : &*task.attempts().rbegin();
}

std::string task_state(const wire::Task& task) {
  if (task.phase() > static_cast<uint32_t>(TaskPhase::finished)) return "unknown";
  const auto phase = phase_of(task);
  if (phase != TaskPhase::finished) return std::string(task_phase_name(phase));
  if (task.outcome() > static_cast<uint32_t>(TaskOutcome::stopped)) return "finished";
  return std::string(task_outcome_name(static_cast<TaskOutcome>(task.outcome())));
}

std::string task_title(const wire::Task& task) {
  return task.spec().name().empty() ? command_text(task.spec()) : task.spec().name();
}

std::string short_title(const wire::Task& task, size_t bytes_max) {
  const wire::Spec& spec = task.spec();
  std::string title = spec.name().empty() ? command_text(spec, bytes_max + 1) : spec.name();
  if (title.size() <= bytes_max) return title;
  size_t end = bytes_max - 3;
  while (end > 0 && (static_cast<unsigned char>(title[end]) & 0xc0) == 0x80) end--;
  return title.substr(0, end) + "...";
}

std::string command_text(const wire::Spec& spec, size_t enough_bytes) {
  std::string text;
  for (const std::string& word : spec.argv()) {
    if (!text.empty()) text += ' ';
    text += shell_quote_if_needed(word);
    if (text.size() >= enough_bytes) break;
  }
  return text;
}

std::string priority_text(const wire::Spec& spec) {
  return spec.has_priority() ? fmt::to_string(spec.priority()) : "auto";
}

std::string reason_text(const wire::ListedTask& listed, int64_t now_wall_ns) {
  return reason_text(listed.task(), listed.has_waiting() ? &listed.waiting() : nullptr,
                     now_wall_ns);
}

std::string reason_text(const wire::Task& task, const wire::Waiting* waiting, int64_t now_wall_ns) {
  const auto phase = phase_of(task);
  if (phase == TaskPhase::finished) {
    return static_cast<TaskOutcome>(task.outcome()) == TaskOutcome::succeeded ? ""
                                                                              : task.outcome_text();
  }
  const wire::Attempt* const current = last_attempt(task);
  if (phase == TaskPhase::stopping && current != nullptr) {
    if (!current->stop_text().empty()) return current->stop_text();
    return current->stop() > static_cast<uint32_t>(kLastStopReason)
               ? ""
               : std::string(stop_reason_name(static_cast<StopReason>(current->stop())));
  }
  if (phase != TaskPhase::queued || waiting == nullptr) return "";
  if (waiting->why() > static_cast<uint32_t>(WaitReason::priority)) return "";
  std::string text(wait_reason_name(static_cast<WaitReason>(waiting->why())));
  std::ranges::replace(text, '_', ' ');
  if (waiting->other() != 0) text += fmt::format(" {}", waiting->other());
  if (waiting->expected() > now_wall_ns) {
    text += fmt::format(", {}", format_duration(waiting->expected() - now_wall_ns));
  }
  return text;
}

std::string drained_text(const wire::Node& node) {
  std::string text = node.drained() ? node.drained_why() : "";
  if (node.drained_by_verdict()) {
    text +=
        fmt::format("{}by verdict: {}", text.empty() ? "" : "; ", fmt::join(node.failed(), ", "));
  }
  return node.drained() && text.empty() ? "by hand" : text;
}

NodeState node_state_of(const wire::ListedNode& listed) {
  if (!drained_text(listed.node()).empty()) return NodeState::drained;
  if (listed.heard() < 0) return NodeState::unknown;
  if (listed.heard() >= SchedulerTimeouts().unresponsive_ns) return NodeState::unresponsive;
  if (listed.task() != 0) return NodeState::busy;
  if (listed.validating()) return NodeState::validating;
  return listed.usable() ? NodeState::free : NodeState::cleaning_up;
}

std::string_view node_state_name(NodeState state) {
  return kNodeStates.at(static_cast<size_t>(state));
}

std::string node_state(const wire::ListedNode& listed) {
  const NodeState state = node_state_of(listed);
  std::string text(node_state_name(state));
  if (state != NodeState::drained) return text;
  return text + (listed.node().drained() ? ": " : " ") + drained_text(listed.node());
}

}  // namespace ff::scheduler

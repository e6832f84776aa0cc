// The --json form of tasks and nodes: the fields that the scheduler stores.
#include <algorithm>

#include "cmd/schedule/format.h"
#include "ops/scheduler/scheduler_state.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using scheduler::StopReason;
using scheduler::wire::Attempt;
using scheduler::wire::Spec;

template <class Words>
Json words_json(const Words& words) {
  Json json = Json::array();
  for (const auto& word : words) json.push_back(word);
  return json;
}

// JSON strings must be UTF-8.
void add_hex(Json& json, const std::string& name, const auto& words) {
  if (std::ranges::all_of(words, [](const std::string& word) { return valid_utf8(word); })) return;
  Json all = Json::array();
  for (const std::string& word : words) all.push_back(hex(as_bytes(word)));
  json[name + "_hex"] = std::move(all);
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json or_null(int64_t ns) { return ns == 0 ? Json() : Json(to_seconds(ns)); }

Json spec_json(const Spec& spec, TaskFields fields) {
  Json json = {{"name", or_null(spec.name())},
               {"argv", words_json(spec.argv())},
               {"cwd", spec.cwd()},
               {"nodes", spec.nodes()},
               {"processes", spec.processes()},
               {"group", spec.group()},
               {"zone", or_null(spec.zone())},
               {"marks", words_json(spec.marks())},
               {"priority", spec.has_priority() ? Json(spec.priority()) : Json("auto")},
               {"limit_s", or_null(spec.limit())},
               {"min_run_s", to_seconds(spec.min_run())},
               {"restarts", spec.restarts()},
               {"restart_on", spec.restart_on() == 0 ? Json() : Json(spec.restart_on())},
               {"signal", spec.signal() == 0 ? Json() : Json(spec.signal())},
               {"memory", spec.memory() == 0 ? Json() : Json(spec.memory())},
               {"hang_s", or_null(spec.hang())}};
  add_hex(json, "argv", spec.argv());
  if (fields == TaskFields::all) {
    json["env"] = words_json(spec.env());
    add_hex(json, "env", spec.env());
  }
  return json;
}

Json attempt_json(const Attempt& current) {
  Json json = {{"number", current.number()}, {"nodes", words_json(current.nodes())}};
  const auto named = static_cast<uint32_t>(current.nodes_size());
  json["nodes_count"] = std::max(named, current.nodes_count());
  json["priority"] = current.level() < scheduler::kPriorityLevels
                         ? Json(scheduler::kPriorities.at(current.level()))
                         : Json();
  json["port"] = current.port() == 0 ? Json() : Json(current.port());
  add_time(json, "placed", current.placed());
  add_time(json, "started", current.started());
  json["saved_step"] = current.has_saved_step() ? Json(current.saved_step()) : Json();
  add_time(json, "saved", current.saved());
  const bool is_stopped = current.stop() != 0;
  const bool is_known = current.stop() <= static_cast<uint32_t>(scheduler::kLastStopReason);
  json["stop"] = !is_stopped ? Json()
                 : is_known
                     ? Json(scheduler::stop_reason_name(static_cast<StopReason>(current.stop())))
                     : Json("unknown");
  json["stop_text"] = or_null(current.stop_text());
  json["stop_for"] = current.stop_for() == 0 ? Json() : Json(current.stop_for());
  add_time(json, "asked", current.asked());
  add_time(json, "acked", current.acked());
  add_time(json, "terminated", current.terminated());
  add_time(json, "killed", current.killed());
  add_time(json, "ended", current.ended());
  const bool has_status = current.status() != 0;
  json["exit"] = has_status ? Json(shell_code(current.status())) : Json();
  json["exit_rank"] = has_status ? Json(current.status_rank()) : Json();
  return json;
}

Json waiting_json(const scheduler::wire::Waiting& waiting) {
  Json json;
  json["why"] =
      waiting.why() > static_cast<uint32_t>(scheduler::WaitReason::priority)
          ? Json("unknown")
          : Json(scheduler::wait_reason_name(static_cast<scheduler::WaitReason>(waiting.why())));
  json["other"] = waiting.other() == 0 ? Json() : Json(waiting.other());
  add_time(json, "expected", waiting.expected());
  json["missing"] = waiting.missing();
  json["quota"] = waiting.has_quota() ? Json(waiting.quota()) : Json();
  return json;
}

}  // namespace

void add_time(Json& json, const std::string& name, int64_t wall_ns) {
  json[name] = wall_ns == 0 ? Json() : Json(format_time(wall_ns));
  json[name + "_s"] = wall_ns == 0 ? Json() : Json(to_seconds(wall_ns));
}

Json task_json(const scheduler::wire::ListedTask& listed, TaskFields fields) {
  const scheduler::wire::Task& task = listed.task();
  Json groups = Json::array();
  for (const uint32_t group : task.owner().groups()) groups.push_back(group);
  Json json = {{"task", task.id()},
               {"state", task_state(task)},
               {"user", task.owner().name()},
               {"uid", task.owner().uid()},
               {"gid", task.owner().gid()},
               {"groups", std::move(groups)},
               {"spec", spec_json(task.spec(), fields)}};
  add_time(json, "submitted", task.submitted());
  add_time(json, "not_before", task.not_before());
  json["waiting"] = listed.has_waiting() ? waiting_json(listed.waiting()) : Json();
  Json attempts = Json::array();
  for (const Attempt& current : task.attempts()) attempts.push_back(attempt_json(current));
  json["attempts"] = std::move(attempts);
  json["attempts_made"] = task.attempts_made();
  json["failures"] = task.failures();
  json["life_state"] = task.life_state();
  const bool is_over = scheduler::phase_of(task) == scheduler::TaskPhase::finished;
  json["outcome"] = is_over ? Json(task_state(task)) : Json();
  json["outcome_text"] = or_null(task.outcome_text());
  add_time(json, "finished", task.finished());
  json["used_node_s"] = to_seconds(task.used());
  json["lost_node_s"] = to_seconds(task.lost());
  json["waited_s"] = or_null(task.waited());
  return json;
}

Json node_json(const scheduler::wire::ListedNode& listed) {
  const scheduler::wire::Node& node = listed.node();
  Json json = {{"node", node.name()},
               {"group", node.group()},
               {"zone", or_null(node.zone())},
               {"leaf", or_null(node.leaf())},
               {"marks", words_json(node.marks())},
               {"address", node.address()},
               {"agent", node.agent()},
               {"state", node_state(listed)},
               {"usable", listed.usable()},
               {"drained", node.drained()},
               {"drained_why", or_null(node.drained_why())},
               {"drained_by_verdict", node.drained_by_verdict()},
               {"failed", words_json(node.failed())},
               {"validating", listed.validating()},
               {"verdict", or_null(verdict_word(node))},
               {"verdict_text", or_null(node.verdict_text())},
               {"task", listed.task() == 0 ? Json() : Json(listed.task())},
               {"heard_s", listed.heard() < 0 ? Json() : Json(to_seconds(listed.heard()))}};
  add_time(json, "validated", node.validated());
  return json;
}

}  // namespace ff::cmd

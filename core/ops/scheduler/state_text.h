// Short texts about tasks and nodes, shared by the lists of `ff schedule` and the web page of the
// scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ops/scheduler/scheduler.pb.h"

namespace ff::scheduler {

// Null before the first attempt.
const wire::Attempt* last_attempt(const wire::Task& task);

// "queued"; the outcome of a finished task; "unknown" for a phase of a newer scheduler.
std::string task_state(const wire::Task& task);
// Its name, or else its command.
std::string task_title(const wire::Task& task);
// At most `bytes_max` bytes, cut at a character boundary.
std::string short_title(const wire::Task& task, size_t bytes_max);
// The command quoted for a shell; stops after `enough_bytes`.
std::string command_text(const wire::Spec& spec, size_t enough_bytes = SIZE_MAX);
// "30", "auto".
std::string priority_text(const wire::Spec& spec);
// Why the task is in its state; empty when there is nothing to say.
std::string reason_text(const wire::ListedTask& listed, int64_t now_wall_ns);
std::string reason_text(const wire::Task& task, const wire::Waiting* waiting, int64_t now_wall_ns);

enum class NodeState : uint8_t {
  free,
  busy,
  cleaning_up,   // ranks of an ended attempt are left
  validating,    // runs its checks
  unresponsive,  // its agent does not report
  unknown,       // no report since the scheduler started
  drained,
};
constexpr size_t kNodeStateCount = 7;
NodeState node_state_of(const wire::ListedNode& listed);
std::string_view node_state_name(NodeState state);
// "bad memory", "by verdict: pci.link", or both; empty: the node is in service.
std::string drained_text(const wire::Node& node);
// "free", "busy", "drained: bad memory", "drained by verdict: pci.link", "validating", "silent",
// "not heard of", "clearing".
std::string node_state(const wire::ListedNode& listed);

}  // namespace ff::scheduler

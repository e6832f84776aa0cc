// What is said of tasks and nodes in a few words: the same in the lists of `ff schedule` and on the
// scheduler's page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ops/scheduler/scheduler.pb.h"

namespace ff::scheduler {

// Null before the first.
const wire::Attempt* last_attempt(const wire::Task& task);

// "queued"; what it ended with, once it is finished; "unknown" of a newer scheduler.
std::string task_state(const wire::Task& task);
// The name it was given, else its command.
std::string task_title(const wire::Task& task);
// No longer than a row has room for, cut where a character begins.
std::string short_title(const wire::Task& task, size_t bytes_max);
// As a shell would take it; no further words once there is enough.
std::string command_text(const wire::Spec& spec, size_t enough_bytes = SIZE_MAX);
// "30", "auto".
std::string priority_text(const wire::Spec& spec);
// Why it is where it is; empty when there is nothing to say.
std::string why_text(const wire::ListedTask& listed, int64_t now_wall_ns);
std::string why_text(const wire::Task& task, const wire::Waiting* waiting, int64_t now_wall_ns);

enum class NodeState : uint8_t {
  free,
  busy,
  clearing,    // something of a task that has ended is left there
  validating,  // runs its checks
  silent,
  unheard,  // since the scheduler has started
  drained,
};
constexpr size_t kNodeStateCount = 7;
NodeState node_state_of(const wire::ListedNode& listed);
std::string_view node_state_name(NodeState state);
// "bad memory", "by verdict: pci.link", or both; empty: it is in service.
std::string drained_text(const wire::Node& node);
// "free", "busy", "drained: bad memory", "drained by verdict: pci.link", "validating", "silent",
// "not heard of", "clearing".
std::string node_state(const wire::ListedNode& listed);

}  // namespace ff::scheduler

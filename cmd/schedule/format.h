// Formats tasks and nodes: text for people and JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "cmd/cli/output.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/scheduler/state_text.h"

namespace ff::cmd {

using scheduler::command_text;
using scheduler::node_state;
using scheduler::priority_text;
using scheduler::reason_text;
using scheduler::task_state;
using scheduler::task_title;

Color task_color(const scheduler::wire::Task& task);
// "4 nodes of group h200 in zone a with marks disk=nvme".
std::string demand_text(const scheduler::wire::Spec& spec);
// One sentence: why the task is in its state, what it waits for, and when that is expected.
std::string explanation(const scheduler::wire::ListedTask& listed, int64_t now_wall_ns);
// The verdict of its last validation: "fail"; empty: none.
std::string verdict_word(const scheduler::wire::Node& node);
// "2h ago: fail, pci.link", "never".
std::string validated_text(const scheduler::wire::Node& node, int64_t now_wall_ns);

// An environment has kilobytes, so lists leave it out.
enum class TaskFields : uint8_t { all, without_environment };
// Times as text and as seconds of the Unix epoch, null if unset.
Json task_json(const scheduler::wire::ListedTask& listed, TaskFields fields);
Json node_json(const scheduler::wire::ListedNode& listed);
// Adds NAME as text and NAME_s; null for 0.
void add_time(Json& json, const std::string& name, int64_t wall_ns);
double node_hours(int64_t node_ns);

// The exit code that a shell would report for a wait status.
int shell_code(int32_t status);

}  // namespace ff::cmd

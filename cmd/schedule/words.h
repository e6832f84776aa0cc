// What the scheduler says of tasks and nodes, in words for people and in JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "cmd/cli/output.h"
#include "ops/scheduler/scheduler.pb.h"
#include "ops/scheduler/words.h"

namespace ff::cmd {

using scheduler::command_text;
using scheduler::node_state;
using scheduler::priority_text;
using scheduler::task_state;
using scheduler::task_title;
using scheduler::why_text;

Color task_color(const scheduler::wire::Task& task);
// "4 nodes of group h200 in zone a with marks disk=nvme".
std::string demand_text(const scheduler::wire::Spec& spec);
// One plain sentence: why it is where it is, what would have to happen, when that is expected.
std::string explanation(const scheduler::wire::ListedTask& listed, int64_t now_wall_ns);
// Of its last run of checks: "fail"; empty, when there was none.
std::string verdict_word(const scheduler::wire::Node& node);
// "2h ago: fail, pci.link", "never".
std::string validated_text(const scheduler::wire::Node& node, int64_t now_wall_ns);

// All of its fields. Times as text and as seconds of the Unix epoch, null when there is none.
Json task_json(const scheduler::wire::ListedTask& listed);
Json node_json(const scheduler::wire::ListedNode& listed);
// Adds NAME as text and NAME_s; null for 0.
void add_time(Json& json, const std::string& name, int64_t wall_ns);
double node_hours(int64_t node_ns);

// How a rank ended, of waitpid(2): the exit code a shell would give it.
int shell_code(int32_t status);

}  // namespace ff::cmd

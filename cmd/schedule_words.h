// What the scheduler says of tasks and nodes, in words for people and in JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "cmd/output.h"
#include "sched/sched.pb.h"
#include "sched/words.h"

namespace ff::cmd {

using sched::command_text;
using sched::node_state;
using sched::priority_text;
using sched::task_state;
using sched::task_title;
using sched::why_text;

Color task_color(const sched::wire::Task& task);
// "4 nodes of group h200 in zone a with marks disk=nvme".
std::string demand_text(const sched::wire::Spec& spec);
// One plain sentence: why it is where it is, what would have to happen, when that is expected.
std::string explanation(const sched::wire::ListedTask& listed, int64_t now_wall_ns);
// Of its last run of checks: "fail"; empty, when there was none.
std::string verdict_word(const sched::wire::Node& node);
// "2h ago: fail, pci.link", "never".
std::string validated_text(const sched::wire::Node& node, int64_t now_wall_ns);

// All of its fields. Times as text and as seconds of the Unix epoch, null when there is none.
Json task_json(const sched::wire::ListedTask& listed);
Json node_json(const sched::wire::ListedNode& listed);
// Adds NAME as text and NAME_s; null for 0.
void add_time(Json& json, const std::string& name, int64_t wall_ns);
double node_hours(int64_t node_ns);

// How a rank ended, of waitpid(2): the exit code a shell would give it.
int shell_code(int32_t status);

}  // namespace ff::cmd

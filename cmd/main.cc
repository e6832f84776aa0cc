// ff: the table of its commands. A new command is one file that defines declare_NAME(Command&)
// and one line here; help, manual pages, completions and links follow from the table.
#include <algorithm>
#include <array>

#include "cmd/cli/cli.h"

// Sorted by name: NAME as typed, the suffix of its declare_ function, one line without full stop.
#define FF_COMMANDS(COMMAND)                                                              \
  COMMAND("admin", admin, "Manage a cluster")                                             \
  COMMAND("allreduce", allreduce, "Allreduce and other collective operations")            \
  COMMAND("bench", bench, "Measure this machine or a cluster")                            \
  COMMAND("checkpoint", checkpoint, "Save, load, verify and manage checkpoints")          \
  COMMAND("down", down, "Stop the cluster that 'ff up' started")                          \
  COMMAND("fs", fs, "Use a cluster's file system without a mount")                        \
  COMMAND("generate", generate, "Write manual pages, completions and units for systemd")  \
  COMMAND("help", help, "Explain a command, list settings, install links")                \
  COMMAND("mount", mount, "Mount a cluster's file system on a directory")                 \
  COMMAND("record", record, "Pack samples of training data into FFRecord files")          \
  COMMAND("schedule", schedule, "Run tasks on the nodes of a cluster")                    \
  COMMAND("serve-kv", serve_kv, "Serve keys and values to clients of Redis, files to S3") \
  COMMAND("serve-meta", serve_meta, "Run the cluster manager and the metadata service")   \
  COMMAND("serve-storage", serve_storage, "Run a storage node")                           \
  COMMAND("sim", sim, "Simulate a cluster with faults, from a seed")                      \
  COMMAND("up", up, "Run a whole cluster on this machine")                                \
  COMMAND("validate", validate, "Check the hardware of this machine")

namespace ff::cmd {

#define FF_DECLARE(name, suffix, summary) void declare_##suffix(Command& command);
FF_COMMANDS(FF_DECLARE)

namespace {
#define FF_ENTRY(name, suffix, summary) CommandEntry{name, summary, declare_##suffix},
constexpr auto kCommands = std::to_array<CommandEntry>({FF_COMMANDS(FF_ENTRY)});
static_assert(std::is_sorted(kCommands.begin(), kCommands.end(),
                             [](const CommandEntry& a, const CommandEntry& b) {
                               return a.name < b.name;
                             }));
}  // namespace
}  // namespace ff::cmd

int main(int argc, char** argv) { return ff::cmd::run_program(ff::cmd::kCommands, argc, argv); }

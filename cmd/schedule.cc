// `ff schedule`: whose task runs where on the nodes of a cluster.
#include "cmd/schedule.h"

namespace ff::cmd {

void declare_schedule(Command& command) {
  command.about(
      "Time sharing of whole nodes (HAI Platform of the Fire-Flyer paper): tasks of higher "
      "priority "
      "interrupt those of lower priority, which save, leave, and go on later where they "
      "stopped.\n\n"
      "Tasks are looked at by priority (50, 40, 30, 20, 10, 0) and then in the order they came. A "
      "gang starts with all of its nodes or not at all, on as few leaf switches as possible; at "
      "most one task at a time spans zones. Who is interrupted: the lowest priority first, then "
      "whoever loses the least work. The first task that must wait has its nodes reserved; others "
      "use them meanwhile if they end in time, or give way at once.");
  declare_schedule_agent(command.sub("agent", "Run what the scheduler gives this node"));
  declare_schedule_shim(command.sub("shim", "Hold one rank of a task, for the agent"));
  declare_schedule_simulate(command.sub("simulate", "Try the scheduler on a trace of tasks"));
}

}  // namespace ff::cmd

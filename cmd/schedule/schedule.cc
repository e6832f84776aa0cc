// `ff schedule`: whose task runs where on the nodes of a cluster.
#include "cmd/schedule/schedule.h"

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
  command.example("ff schedule serve", "the scheduler");
  command.example("ff schedule agent --scheduler s1:4500", "on each node");
  command.example("ff schedule submit -n 4 python train.py --lr 3e-4", "a task for four nodes");
  command.example("ff schedule list", "what runs and what waits");
  declare_schedule_serve(command.sub("serve", "Run the scheduler"));
  declare_schedule_agent(command.sub("agent", "Run what the scheduler gives this node"));
  declare_schedule_submit(command.sub("submit", "Put a task into the queue"));
  declare_schedule_run(command.sub("run", "Submit a task, follow it, and exit as it does"));
  declare_schedule_list(command.sub("list", "List tasks"));
  declare_schedule_show(command.sub("show", "Show all that is known of a task"));
  declare_schedule_explain(command.sub("explain", "Say why a task waits"));
  declare_schedule_logs(command.sub("logs", "Print what a task prints"));
  declare_schedule_control(command);
  declare_schedule_nodes(command);
  declare_schedule_quota(command);
  declare_schedule_history(command.sub("history", "Add up what tasks have used"));
  declare_schedule_shim(command.sub("shim", "Hold one rank of a task, for the agent"));
  declare_schedule_simulate(command.sub("simulate", "Try the scheduler on a trace of tasks"));
}

}  // namespace ff::cmd

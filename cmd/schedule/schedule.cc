// `ff schedule`: whose task runs where on the nodes of a cluster.
#include "cmd/schedule/schedule.h"

namespace ff::cmd {

void declare_schedule(Command& command) {
  command.about(
      "Time sharing of whole nodes (HAI Platform of the Fire-Flyer paper): a task preempts tasks "
      "of lower priority. Those save, release their nodes, and later continue where they "
      "stopped.\n\nThe scheduler considers tasks by priority (50, 40, 30, 20, 10, 0) and then in "
      "the order of submission. A task starts on all of its nodes or not at all (gang scheduling), "
      "on as few leaf switches as possible. Only a task that needs more nodes than a zone has "
      "spans "
      "zones, and only one at a time; it waits in its turn like any other task. The scheduler "
      "preempts the tasks of the lowest priority first, and among those the tasks that lose the "
      "least work. It reserves nodes for the first task that must wait; other tasks use these "
      "nodes meanwhile if they end in time or can be preempted at once.");
  command.example("ff schedule serve", "the scheduler");
  command.example("ff schedule agent --scheduler s1:4500", "on each node");
  command.example("ff schedule submit -n 4 python train.py --lr 3e-4", "a task for four nodes");
  command.example("ff schedule list", "running and waiting tasks");
  declare_schedule_serve(command.sub("serve", "Run the scheduler"));
  declare_schedule_agent(command.sub("agent", "Run the tasks of this node"));
  declare_schedule_submit(command.sub("submit", "Put a task into the queue"));
  declare_schedule_run(
      command.sub("run", "Submit a task, print its output, and exit with its exit code"));
  declare_schedule_list(command.sub("list", "List tasks"));
  declare_schedule_show(command.sub("show", "Show the details of a task"));
  declare_schedule_explain(command.sub("explain", "Explain why a task waits"));
  declare_schedule_logs(command.sub("logs", "Print the output of a task"));
  declare_schedule_control(command);
  declare_schedule_nodes(command);
  declare_schedule_quota(command);
  declare_schedule_history(command.sub("history", "Show how much users have used"));
  declare_schedule_shim(command.sub("shim", "Run one rank of a task, for the agent").hidden());
  declare_schedule_simulate(command.sub("simulate", "Simulate the scheduler on a trace of tasks"));
}

}  // namespace ff::cmd

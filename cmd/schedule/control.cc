// `ff schedule stop`, `suspend` and `resume`: control of own tasks.
#include "cmd/cli/batch.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/scheduler_state.h"

namespace ff::cmd {
namespace {

using scheduler::TaskControl;

struct ControlOptions {
  ScheduleOptions schedule;
  std::vector<uint64_t> tasks;
};

Result<void> control(SchedulerClient& client, uint64_t task, TaskControl what) {
  scheduler::wire::ControlRequest request;
  request.set_task(task);
  request.set_what(static_cast<uint32_t>(what));
  auto reply = client.call(scheduler::kControl, request);
  if (reply) return {};
  Error error = std::move(reply).error();
  if (error.hint.empty() && error.code == Errc::not_found) {
    error.hint = "List them: ff schedule list -a";
  } else if (error.hint.empty() && error.code == Errc::refused) {
    error.hint = fmt::format("Show it: ff schedule show {}", task);
  }
  return error;
}

// Tries all, even if one fails.
Result<void> run_control(Session& session, const ControlOptions& options, int64_t timeout_ns,
                         TaskControl what) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  Failures failures(session.out);
  Json done = Json::array();
  for (const uint64_t task : options.tasks) {
    auto controlled = control(*client, task, what);
    if (controlled) {
      done.push_back(task);
    } else if (!failures.add(std::move(controlled).error())) {
      break;
    }
  }
  session.out.data({{"tasks", std::move(done)}});
  return failures.result();
}

void declare_control(Command& command, TaskControl what) {
  auto& options = command.keep<ControlOptions>();
  command.argument("TASK", number(options.tasks, "TASK"), "Ids of the tasks");
  declare_scheduler(command, options.schedule);
  command.blocking(kScheduleNs);
  command.run([&options, &command, what](Session& session) {
    return run_control(session, options, command.timeout_ns(), what);
  });
}

}  // namespace

void declare_schedule_control(Command& schedule) {
  Command& stop = schedule.sub("stop", "Stop tasks");
  stop.about(
      "Stops tasks for good. A running task is asked to save and exit, then gets SIGTERM, then "
      "SIGKILL; a waiting task leaves the queue. The command returns when the scheduler has "
      "recorded the request; 'ff schedule show' shows the progress. Only the user of a task and "
      "the operator (with the cluster key) can stop it.");
  stop.example("ff schedule stop 17 18", "stop two tasks");
  declare_control(stop, TaskControl::stop);

  Command& suspend = schedule.sub("suspend", "Stop tasks until they are resumed");
  suspend.about(
      "The scheduler asks a running task to save and release its nodes, as for stop. The task "
      "keeps its id and its checkpoints, and stays out of the queue until 'ff schedule resume'.");
  suspend.example("ff schedule suspend 17", "free its nodes for other tasks");
  declare_control(suspend, TaskControl::suspend);

  Command& resume = schedule.sub("resume", "Put suspended tasks back into the queue");
  resume.about("A resumed task returns to the position in the queue that its id determines.");
  resume.example("ff schedule resume 17", "continue the task");
  declare_control(resume, TaskControl::resume);
}

}  // namespace ff::cmd

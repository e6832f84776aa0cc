// `ff schedule stop`, `suspend` and `resume`: what users do to their tasks.
#include "cmd/cli/many.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/book.h"

namespace ff::cmd {
namespace {

using scheduler::Control;

struct ControlOptions {
  ScheduleOptions schedule;
  std::vector<uint64_t> tasks;
};

Result<void> control(ScheduleCalls& calls, uint64_t task, Control what) {
  scheduler::wire::ControlRequest request;
  request.set_task(task);
  request.set_what(static_cast<uint32_t>(what));
  auto reply = calls.call(scheduler::kControl, request);
  if (reply) return {};
  Error error = std::move(reply).error();
  if (error.hint.empty() && error.code == Errc::not_found) {
    error.hint = "List them: ff schedule list -a";
  } else if (error.hint.empty() && error.code == Errc::refused) {
    error.hint = fmt::format("Show it: ff schedule show {}", task);
  }
  return error;
}

// All of them, whatever becomes of one.
Result<void> run_control(Session& session, const ControlOptions& options, int64_t timeout_ns,
                         Control what) {
  FF_TRY(const auto calls, ScheduleCalls::open(session, options.schedule, timeout_ns));
  Failures failures(session.out);
  Json done = Json::array();
  for (const uint64_t task : options.tasks) {
    auto controlled = control(*calls, task, what);
    if (controlled) {
      done.push_back(task);
    } else if (!failures.add(std::move(controlled).error())) {
      break;
    }
  }
  session.out.data({{"tasks", std::move(done)}});
  return failures.end();
}

void declare_control(Command& command, Control what) {
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
  declare_control(stop, Control::stop);

  Command& suspend = schedule.sub("suspend", "Stop tasks until they are resumed");
  suspend.about(
      "The scheduler asks a running task to save and release its nodes, as for stop. The task "
      "keeps its id and its checkpoints, and stays out of the queue until 'ff schedule resume'.");
  suspend.example("ff schedule suspend 17", "free its nodes for other tasks");
  declare_control(suspend, Control::suspend);

  Command& resume = schedule.sub("resume", "Put suspended tasks back into the queue");
  resume.about("A resumed task returns to the position in the queue that its id determines.");
  resume.example("ff schedule resume 17", "continue the task");
  declare_control(resume, Control::resume);
}

}  // namespace ff::cmd

// `ff schedule stop`, `suspend` and `resume`: control of own tasks.
#include "cmd/cli/many.h"
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
    error.hint = fmt::format("Look at it: ff schedule show {}", task);
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
  return failures.end();
}

void declare_control(Command& command, TaskControl what) {
  auto& options = command.keep<ControlOptions>();
  command.argument("TASK", number(options.tasks, "TASK"), "Their ids");
  declare_scheduler(command, options.schedule);
  command.blocking(kScheduleNs);
  command.run([&options, &command, what](Session& session) {
    return run_control(session, options, command.timeout_ns(), what);
  });
}

}  // namespace

void declare_schedule_control(Command& schedule) {
  Command& stop = schedule.sub("stop", "End tasks for good");
  stop.about(
      "Ends tasks: one that runs is asked to save and leave, then gets SIGTERM, then SIGKILL; one "
      "that waits leaves the queue. Returns when the scheduler has taken that down, not when the "
      "tasks have ended: 'ff schedule show' tells how far they are. Only its user and the operator "
      "(the cluster key) may stop a task.");
  stop.example("ff schedule stop 17 18", "two of them");
  declare_control(stop, TaskControl::stop);

  Command& suspend = schedule.sub("suspend", "Take tasks off their nodes, until they are resumed");
  suspend.about(
      "A task that runs is asked to save and leave its nodes, as for stop; it keeps its id and its "
      "checkpoints, and waits outside of the queue until 'ff schedule resume'.");
  suspend.example("ff schedule suspend 17", "make room for something else");
  declare_control(suspend, TaskControl::suspend);

  Command& resume = schedule.sub("resume", "Put suspended tasks back into the queue");
  resume.about("A resumed task has the place in the queue that its id gives it.");
  resume.example("ff schedule resume 17", "go on with it");
  declare_control(resume, TaskControl::resume);
}

}  // namespace ff::cmd

// `ff schedule logs` and `run`: prints the output of a task; runs a task like a local program.
#include "cmd/schedule/format.h"
#include "cmd/schedule/log_reader.h"
#include "cmd/schedule/schedule.h"
#include "cmd/schedule/submit.h"
#include "ops/scheduler/scheduler_state.h"

namespace ff::cmd {
namespace {

constexpr int kOwnFailure = 125;  // as in env(1), nohup(1) and timeout(1)

struct LogsOptions {
  ScheduleOptions schedule;
  LogSelection wanted;
};

struct FollowedOptions {
  ScheduleOptions schedule;
  SubmitOptions task;
  bool timestamps = false;
};

Result<void> run_logs(Session& session, const LogsOptions& options, int64_t timeout_ns) {
  if (options.wanted.attempt && *options.wanted.attempt == 0) {
    return fail(Errc::usage, "--attempt 0: attempts are numbered from 1");
  }
  if (options.wanted.attempt && options.wanted.all) {
    return fail(Errc::usage, "--attempt and --all-attempts exclude each other");
  }
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(LogReader(*client, options.wanted).run());
  return {};
}

// The exit code of its program; an error if the program did not exit by itself.
Result<int> exit_of(const scheduler::wire::Task& task) {
  const auto outcome = static_cast<scheduler::TaskOutcome>(task.outcome());
  if (outcome == scheduler::TaskOutcome::succeeded) return 0;
  const bool has_status = !task.attempts().empty() && task.attempts().rbegin()->status() != 0;
  if (outcome == scheduler::TaskOutcome::failed && has_status) {
    return shell_code(task.attempts().rbegin()->status());
  }
  return Error{Errc::failed,
               fmt::format("task {} has {}: {}", task.id(),
                           outcome == scheduler::TaskOutcome::stopped ? "been stopped" : "failed",
                           task.outcome_text()),
               fmt::format("Details: ff schedule show {}", task.id())};
}

Result<void> run_run(Session& session, const FollowedOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const uint64_t id, submit_task(*client, options.task));
  session.out.note("task {}", id);
  LogSelection wanted;
  wanted.task = id;
  wanted.follow = true;
  wanted.plain = !options.timestamps && !session.out.stdout_is_terminal();
  auto ended = LogReader(*client, wanted).run();
  if (!ended && !session.stop.check()) {
    // Printed with --quiet, too: the task keeps running.
    session.out.warn(
        "task {} continues; to stop it: ff schedule stop {}; for its output: ff schedule logs -f "
        "{}",
        id, id, id);
    return std::move(ended).error();
  }
  if (!ended && ended.error().code == Errc::not_found) {
    // The log is missing; the exit code still counts.
    session.out.warn("{}", ended.error().message);
    ended = client->task(id);
  }
  FF_TRY(const auto listed, std::move(ended));
  FF_TRY(const int code, exit_of(listed.task()));
  session.out.exit_with(code);
  if (session.out.mode().json) {
    FF_TRY(session.out.emit({{"task", id}, {"state", task_state(listed.task())}, {"exit", code}}));
  }
  return {};
}

}  // namespace

void declare_schedule_logs(Command& logs) {
  auto& options = logs.keep<LogsOptions>();
  logs.about(
      "Prints the output of one rank of a task (stdout and stderr), which the agent of its node "
      "has stored. On a terminal control bytes appear as \\xNN; a pipe gets the unchanged "
      "bytes.\n\nWith -f the command follows the output until the task has finished, also through "
      "preemptions and restarts. Each attempt has its own log. Agents keep the newest part of each "
      "log; -a prints the logs of all attempts as one.");
  logs.argument("TASK", number(options.wanted.task, "TASK"), "Id of the task");
  logs.option("--rank", number(options.wanted.rank), "Rank whose output to print");
  logs.option("--attempt", number(options.wanted.attempt),
              "Attempt whose output to print; without it the newest");
  logs.flag("-a,--all-attempts", options.wanted.all,
            "Print all attempts, starting with the first one stored");
  logs.flag("-f,--follow", options.wanted.follow, "Follow the output until the task has finished");
  logs.option("-n,--lines", number(options.wanted.lines),
              "Print only the last N lines of the attempt, from its last 768 KiB");
  declare_scheduler(logs, options.schedule);
  logs.example("ff schedule logs -f 17", "follow the output");
  logs.example("ff schedule logs -a 17", "the whole output of rank 0");
  logs.example("ff schedule logs 17 --rank 3 -n 50", "the end of the output of rank 3");
  logs.blocking();
  logs.run([&options, &logs](Session& session) {
    return run_logs(session, options, logs.timeout_ns());
  });
}

void declare_schedule_run(Command& run) {
  auto& options = run.keep<FollowedOptions>();
  run.about(
      "Submits a task, prints the output of its rank 0 until the task has finished, and exits with "
      "the exit code of the task: that of the rank that failed first, 128 plus the signal number "
      "if a signal killed it, 0 on success. The exit code is 125 if ff itself fails, or if the "
      "task was stopped, exceeded its time or hung.\n\nOn a terminal each line of output begins "
      "with the time at which the task printed it. A pipe or a file gets the output as the task "
      "printed it; messages of ff go to standard error.\n\nCtrl-C ends this command with exit code "
      "130, but not the task; the command then prints how to stop the task.");
  declare_task(run, options.task);
  declare_scheduler(run, options.schedule);
  run.flag("--timestamps", options.timestamps,
           "Begin each line with the time at which the task printed it, also in a pipe or file");
  run.example("host=$(ff schedule run hostname)", "in a script");
  run.example("ff schedule run -n 2 ./all_reduce_test --size 1G", "like a local command");
  run.blocking();
  run.exits_with(kOwnFailure);
  run.run(
      [&options, &run](Session& session) { return run_run(session, options, run.timeout_ns()); });
}

}  // namespace ff::cmd

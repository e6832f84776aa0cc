// `ff schedule logs` and `run`: what a task prints, and a task as if it were a program of one's
// own.
#include "cmd/schedule/follow.h"
#include "cmd/schedule/schedule.h"
#include "cmd/schedule/submit.h"
#include "cmd/schedule/words.h"
#include "ops/scheduler/book.h"

namespace ff::cmd {
namespace {

constexpr int kOwnFailure = 125;  // as env(1), nohup(1) and timeout(1) have it

struct LogsOptions {
  ScheduleOptions schedule;
  LogWanted wanted;
};

struct FollowedOptions {
  ScheduleOptions schedule;
  SubmitOptions task;
};

Result<void> run_logs(Session& session, const LogsOptions& options, int64_t timeout_ns) {
  if (options.wanted.attempt && *options.wanted.attempt == 0) {
    return fail(Errc::usage, "--attempt 0: they are counted from 1");
  }
  if (options.wanted.attempt && options.wanted.all) {
    return fail(Errc::usage, "--attempt is one of them, and --all-attempts all");
  }
  FF_TRY(const auto calls, ScheduleCalls::open(session, options.schedule, timeout_ns));
  FF_TRY(LogReader(*calls, options.wanted).run());
  return {};
}

// The exit code of its program; an error, where that has not ended by itself.
Result<int> exit_of(const scheduler::wire::Task& task) {
  const auto outcome = static_cast<scheduler::Outcome>(task.outcome());
  if (outcome == scheduler::Outcome::succeeded) return 0;
  const bool has_status = !task.attempts().empty() && task.attempts().rbegin()->status() != 0;
  if (outcome == scheduler::Outcome::failed && has_status) {
    return shell_code(task.attempts().rbegin()->status());
  }
  return Error{Errc::failed,
               fmt::format("task {} has {}: {}", task.id(),
                           outcome == scheduler::Outcome::stopped ? "been ended" : "failed",
                           task.outcome_text()),
               fmt::format("How it went: ff schedule show {}", task.id())};
}

Result<void> run_run(Session& session, const FollowedOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto calls, ScheduleCalls::open(session, options.schedule, timeout_ns));
  FF_TRY(const uint64_t id, submit_task(*calls, options.task));
  session.out.note("task {}", id);
  LogWanted wanted;
  wanted.task = id;
  wanted.follow = true;
  auto ended = LogReader(*calls, wanted).run();
  if (!ended && !session.stop.check()) {
    // Said with --quiet, too: what was begun goes on.
    session.out.warn(
        "task {} goes on; stop it: ff schedule stop {}; its output: ff schedule logs "
        "-f {}",
        id, id, id);
    return std::move(ended).error();
  }
  if (!ended && ended.error().code == Errc::not_found) {
    // Its log is not there, or not any more; what it ended with counts.
    session.out.warn("{}", ended.error().message);
    ended = calls->task(id);
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
      "Prints what a rank of a task has printed, of both its streams, from the agent of the node "
      "that has had it. On a terminal control bytes are shown as \\xNN; a pipe gets the bytes as "
      "they are.\n\n"
      "With -f it goes on, also through interruptions and restarts, until the task is finished. "
      "Each attempt has a log of its own; agents keep the newest part of it, and -a prints those "
      "of "
      "all attempts as one.");
  logs.argument("TASK", number(options.wanted.task, "TASK"), "Its id");
  logs.option("--rank", number(options.wanted.rank), "Of which rank");
  logs.option("--attempt", number(options.wanted.attempt), "Of which attempt; else the newest");
  logs.flag("-a,--all-attempts", options.wanted.all, "From the first attempt that is known on");
  logs.flag("-f,--follow", options.wanted.follow, "Go on until the task is finished");
  logs.option("-n,--lines", number(options.wanted.lines),
              "Begin with the last N lines of the attempt, of its last 768 KiB");
  declare_scheduler(logs, options.schedule);
  logs.example("ff schedule logs -f 17", "watch it");
  logs.example("ff schedule logs -a 17", "all that its rank 0 has ever printed");
  logs.example("ff schedule logs 17 --rank 3 -n 50", "the end of another rank's");
  logs.blocking();
  logs.run([&options, &logs](Session& session) {
    return run_logs(session, options, logs.timeout_ns());
  });
}

void declare_schedule_run(Command& run) {
  auto& options = run.keep<FollowedOptions>();
  run.about(
      "Submits a task, prints what its rank 0 prints until the task is finished, and exits with "
      "the exit code of the task: that of the rank that failed first, 128 and the number of the "
      "signal when one killed it, 0 when all went well. 125 when ff itself fails, and when the "
      "task ends otherwise: stopped, out of time, hung.\n\n"
      "Ctrl-C ends the watching (130), not the task: how to stop that is said then.");
  declare_task(run, options.task);
  declare_scheduler(run, options.schedule);
  run.example("ff schedule run -n 2 ./all_reduce_test --size 1G", "as if it ran here");
  run.blocking();
  run.exits_with(kOwnFailure);
  run.run(
      [&options, &run](Session& session) { return run_run(session, options, run.timeout_ns()); });
}

}  // namespace ff::cmd

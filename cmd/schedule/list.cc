// `ff schedule list`, `show` and `explain`: lists tasks, shows all fields of one, explains why it
// waits.
#include <algorithm>

#include "cmd/cli/batch.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/format.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/scheduler_state.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

using scheduler::wire::Attempt;
using scheduler::wire::ListedTask;
using scheduler::wire::ListRequest;

constexpr size_t kTitleMax = 40;  // of a row; --json has all of it

struct ListOptions {
  ScheduleOptions schedule;
  bool all = false;
  std::optional<std::string> user;
  std::optional<uint64_t> count;
};

struct OneOptions {
  ScheduleOptions schedule;
  uint64_t task = 0;
};

// The start of its run, or the duration.
std::string ran_text(const scheduler::wire::Task& task, int64_t now_ns) {
  if (task.attempts().empty()) return "";
  const Attempt& current = *task.attempts().rbegin();
  if (current.started() == 0) return "";
  const int64_t until_ns = current.ended() != 0 ? current.ended() : now_ns;
  return format_duration(std::max<int64_t>(0, until_ns - current.started()));
}

class TaskTable {
 public:
  TaskTable(SchedulerClient& client)  // NOLINT: implicit
      : client_(client),
        table_(client.session().out, {{"TASK", Align::right},
                                      {"USER"},
                                      {"STATE"},
                                      {"PRIO", Align::right},
                                      {"PARTITION"},
                                      {"NODES", Align::right},
                                      {"AGE", Align::right},
                                      {"RAN", Align::right},
                                      {"NAME"},
                                      {"WHY"}}) {}
  void add(const ListedTask& listed) {
    const scheduler::wire::Task& task = listed.task();
    const int64_t now_ns = client_.wall_ns();
    table_.row(
        {fmt::to_string(task.id()), task.owner().name(), Cell(task_state(task), task_color(task)),
         priority_text(task.spec()), task.spec().group(), fmt::to_string(task.spec().nodes()),
         format_duration(std::max<int64_t>(0, now_ns - task.submitted())), ran_text(task, now_ns),
         scheduler::short_title(task, kTitleMax), reason_text(listed, now_ns)});
  }

 private:
  SchedulerClient& client_;
  Table table_;
};

Result<void> run_list(Session& session, const ListOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  uint64_t left = options.count.value_or(UINT64_MAX);
  JsonList json(session.out, "tasks");
  uint64_t shown = 0;
  {
    TaskTable table(*client);
    const TaskFilter wanted{.finished = options.all, .user = options.user};
    FF_TRY(for_each_task(*client, wanted, [&](const ListedTask& listed) {
      if (left == 0) return false;
      left--;
      shown++;
      table.add(listed);
      json.add(task_json(listed, TaskFields::without_environment));
      return true;
    }));
  }
  json.finish();
  if (shown == 0) {
    session.out.note("{}", options.all ? "no tasks" : "no unfinished tasks; -a shows all");
  }
  return {};
}

void add_if(Table& table, const char* what, const std::string& value) {
  if (!value.empty()) table.row({what, value});
}

std::string some_duration(int64_t ns) { return ns == 0 ? "" : format_duration(ns); }

std::string hours_text(const scheduler::wire::Task& task) {
  return fmt::format("{:.2f} used, {:.2f} of them lost", node_hours(task.used()),
                     node_hours(task.lost()));
}

void print_task(Output& out, const ListedTask& listed, int64_t now_ns) {
  const scheduler::wire::Task& task = listed.task();
  const auto& spec = task.spec();
  auto table = out.table({{"WHAT"}, {"VALUE"}});
  table.row({"task", fmt::to_string(task.id())});
  add_if(table, "name", spec.name());
  table.row({"user", fmt::format("{} (uid {}, gid {})", task.owner().name(), task.owner().uid(),
                                 task.owner().gid())});
  table.row({"state", Cell(task_state(task), task_color(task))});
  table.row({"explained", explanation(listed, now_ns)});
  table.row({"command", command_text(spec)});
  table.row({"folder", spec.cwd()});
  if (spec.env_size() > 0) {
    table.row({"environment", fmt::format("{} variables (--json shows them)", spec.env_size())});
  }
  table.row({"asks for", demand_text(spec)});
  table.row({"processes of a node", fmt::to_string(spec.processes())});
  table.row({"priority", priority_text(spec)});
  add_if(table, "time limit", some_duration(spec.limit()));
  add_if(table, "runs at least", some_duration(spec.min_run()));
  if (spec.restarts() > 0) {
    table.row(
        {"restarts", fmt::format("{} of {} after failures", task.failures(), spec.restarts())});
  }
  if (spec.signal() > 0) table.row({"signal", fmt::to_string(spec.signal())});
  if (spec.memory() > 0) table.row({"memory of a rank", format_size(spec.memory())});
  table.row({"hangs when silent for", spec.hang() == 0 ? "never" : format_duration(spec.hang())});
  table.row({"submitted", format_time(task.submitted())});
  add_if(table, "waited for its start", some_duration(task.waited()));
  if (task.finished() != 0) table.row({"finished", format_time(task.finished())});
  table.row({"node-hours", hours_text(task)});
  if (task.life_state() != 0) table.row({"life state", fmt::to_string(task.life_state())});
  table.row({"attempts", fmt::to_string(task.attempts_made())});
}

std::string stop_text(const Attempt& current) {
  const auto why =
      current.stop() <= static_cast<uint32_t>(scheduler::kLastStopReason)
          ? scheduler::stop_reason_name(static_cast<scheduler::StopReason>(current.stop()))
          : "unknown";
  return current.stop_text().empty() ? std::string(why)
                                     : fmt::format("{}: {}", why, current.stop_text());
}

// The scheduler keeps only the first nodes of old attempts.
std::string attempt_nodes_text(const Attempt& current) {
  const auto named = static_cast<uint32_t>(current.nodes_size());
  const std::string names = fmt::format("{}", fmt::join(current.nodes(), " "));
  if (current.nodes_count() <= named) return names;
  return fmt::format("{} and {} more", names, current.nodes_count() - named);
}

// One step per row, with the time since the step before.
void print_attempts(Output& out, const scheduler::wire::Task& task) {
  out.line("");
  auto table =
      out.table({{"ATTEMPT", Align::right}, {"STEP"}, {"WHEN"}, {"AFTER", Align::right}, {"WHAT"}});
  for (const Attempt& current : task.attempts()) {
    struct Step {
      const char* name;
      int64_t at_ns;
      std::string what;
    };
    const bool failed = current.status() != 0;
    std::vector<Step> steps = {
        {"placed", current.placed(), attempt_nodes_text(current)},
        {"started", current.started(),
         current.port() == 0 ? "" : fmt::format("MASTER_PORT {}", current.port())},
        {"saved", current.saved(),
         current.has_saved_step() ? fmt::format("step {}", current.saved_step()) : ""},
        {"asked to stop", current.asked(), stop_text(current)},
        {"answered", current.acked(), ""},
        {"SIGTERM", current.terminated(), ""},
        {"SIGKILL", current.killed(), ""},
        {"ended", current.ended(),
         failed
             ? fmt::format("rank {}, exit {}", current.status_rank(), shell_code(current.status()))
             : ""}};
    std::erase_if(steps, [](const Step& step) { return step.at_ns == 0; });
    std::ranges::stable_sort(steps, {}, &Step::at_ns);
    int64_t before_ns = 0;
    for (const Step& step : steps) {
      table.row({fmt::to_string(current.number()), step.name, format_time(step.at_ns),
                 before_ns == 0 ? "" : format_duration(step.at_ns - before_ns), step.what});
      before_ns = step.at_ns;
    }
  }
}

Result<void> run_show(Session& session, const OneOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const auto listed, client->task(options.task));
  print_task(session.out, listed, client->wall_ns());
  if (!listed.task().attempts().empty()) print_attempts(session.out, listed.task());
  Json data = task_json(listed, TaskFields::all);
  data["explained"] = explanation(listed, client->wall_ns());
  session.out.data(std::move(data));
  return {};
}

Result<void> run_explain(Session& session, const OneOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const auto listed, client->task(options.task));
  const std::string sentence = explanation(listed, client->wall_ns());
  session.out.line("{}", sentence);
  const Json whole = task_json(listed, TaskFields::without_environment);
  session.out.data({{"task", listed.task().id()},
                    {"state", task_state(listed.task())},
                    {"explained", sentence},
                    {"waiting", whole["waiting"]}});
  return {};
}

using RunOne = Result<void> (*)(Session&, const OneOptions&, int64_t);

void declare_one(Command& command, RunOne run) {
  auto& options = command.keep<OneOptions>();
  command.argument("TASK", number(options.task, "TASK"), "Id of the task");
  declare_scheduler(command, options.schedule);
  command.blocking(kScheduleNs);
  command.run([&options, &command, run](Session& session) {
    return run(session, options, command.timeout_ns());
  });
}

}  // namespace

Result<void> for_each_task(SchedulerClient& client, const TaskFilter& wanted,
                           const std::function<bool(const ListedTask&)>& take) {
  ListRequest request;
  request.set_finished(wanted.finished);
  request.set_limit(kTasksPerPage);
  for (;;) {
    FF_TRY(const auto reply, client.call(scheduler::kList, request));
    for (const ListedTask& listed : reply.tasks()) {
      request.set_before(listed.task().id());
      const auto& owner = listed.task().owner();
      const bool is_theirs = !wanted.user || owner.name() == *wanted.user ||
                             fmt::to_string(owner.uid()) == *wanted.user;
      if (is_theirs && !take(listed)) return {};
    }
    if (!reply.more() || reply.tasks().empty()) return {};
  }
}

void declare_schedule_list(Command& list) {
  auto& options = list.keep<ListOptions>();
  list.about(
      "Lists the unfinished tasks of all users, the newest first. AGE is the time since "
      "submission, RAN the run time of the last attempt, and WHY a short reason why the task waits "
      "('ff schedule explain' says more), stops, or has failed. --json has all fields of each task "
      "but its environment ('ff schedule show --json').");
  list.flag("-a,--all", options.all, "Also list finished tasks");
  list.option("--user", text(options.user, "USER"),
              "List only tasks of this user: a name or a uid");
  list.option("--count", number(options.count), "List at most this many tasks");
  declare_scheduler(list, options.schedule);
  list.example("ff schedule list", "running and waiting tasks");
  list.example("ff schedule list -a --user ann --count 20 --json", "for programs");
  list.blocking(kScheduleNs);
  list.run([&options, &list](Session& session) {
    return run_list(session, options, list.timeout_ns());
  });
}

void declare_schedule_show(Command& show) {
  show.about(
      "Shows the details of a task: what it requests, its attempts with the time of each step, the "
      "last saved step, how it ended, and the node-hours that it has used and lost. Lost "
      "node-hours are those since the last save before the task had to release its nodes. Only the "
      "user of the task and the operator see its environment.");
  show.example("ff schedule show 17", "all details of one task");
  declare_one(show, run_show);
}

void declare_schedule_explain(Command& explain) {
  explain.about(
      "Explains in one sentence why a task waits or which state it is in, what must happen before "
      "it can start, and when the scheduler expects that, as of its last decision.");
  explain.example("ff schedule explain 17", "the reason why task 17 does not run");
  declare_one(explain, run_explain);
}

}  // namespace ff::cmd

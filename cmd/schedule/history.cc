// `ff schedule history`: use, loss and waiting time of finished tasks, by user.
#include <map>

#include "cmd/cli/batch.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/format.h"
#include "cmd/schedule/schedule.h"
#include "ops/scheduler/scheduler_state.h"
#include "platform/base/clock.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

struct HistoryOptions {
  ScheduleOptions schedule;
  std::optional<int64_t> since_ns;
  std::optional<std::string> user;
};

struct Sum {
  uint64_t tasks = 0, succeeded = 0, failed = 0, stopped = 0;
  uint64_t started = 0;  // tasks that ran; the others were stopped before
  int64_t used_ns = 0, lost_ns = 0;
  double waited_ns = 0;  // until the first start, total

  void add(const scheduler::wire::Task& task) {
    tasks++;
    switch (static_cast<scheduler::TaskOutcome>(task.outcome())) {
      case scheduler::TaskOutcome::succeeded: succeeded++; break;
      case scheduler::TaskOutcome::failed: failed++; break;
      case scheduler::TaskOutcome::stopped: stopped++; break;
      case scheduler::TaskOutcome::none: break;
    }
    used_ns += task.used();
    lost_ns += task.lost();
    if (task.waited() == 0) return;
    started++;
    waited_ns += static_cast<double>(task.waited());
  }
  int64_t mean_wait_ns() const {
    return started == 0 ? 0 : static_cast<int64_t>(waited_ns / static_cast<double>(started));
  }
};

Json sum_json(const Sum& sum) {
  Json json = {{"tasks", sum.tasks},
               {"succeeded", sum.succeeded},
               {"failed", sum.failed},
               {"stopped", sum.stopped},
               {"node_hours_used", node_hours(sum.used_ns)},
               {"node_hours_lost", node_hours(sum.lost_ns)}};
  json["mean_wait_s"] = sum.started == 0 ? Json() : Json(to_seconds(sum.mean_wait_ns()));
  return json;
}

void add_usage_row(Table& table, const std::string& who, const Sum& sum) {
  table.row({who, fmt::to_string(sum.tasks), fmt::to_string(sum.succeeded),
             fmt::to_string(sum.failed), fmt::to_string(sum.stopped),
             fmt::format("{:.2f}", node_hours(sum.used_ns)),
             fmt::format("{:.2f}", node_hours(sum.lost_ns)),
             sum.started == 0 ? "" : format_duration(sum.mean_wait_ns())});
}

Result<void> run_history(Session& session, const HistoryOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  const int64_t from_ns = options.since_ns ? client->wall_ns() - *options.since_ns : 0;
  std::map<std::string, Sum> users;
  Sum total;
  const TaskFilter wanted{.finished = true, .user = options.user};
  FF_TRY(for_each_task(*client, wanted, [&](const scheduler::wire::ListedTask& listed) {
    const auto& task = listed.task();
    const bool is_over = scheduler::phase_of(task) == scheduler::TaskPhase::finished;
    if (is_over && task.finished() >= from_ns) {
      users[task.owner().name()].add(task);
      total.add(task);
    }
    return true;
  }));
  Json json = Json::array();
  {
    auto table = session.out.table({{"USER"},
                                    {"TASKS", Align::right},
                                    {"SUCCEEDED", Align::right},
                                    {"FAILED", Align::right},
                                    {"STOPPED", Align::right},
                                    {"NODE-HOURS", Align::right},
                                    {"LOST", Align::right},
                                    {"MEAN WAIT", Align::right}});
    for (const auto& [user, sum] : users) {
      add_usage_row(table, user, sum);
      Json one = {{"user", user}};
      one.update(sum_json(sum));
      json.push_back(std::move(one));
    }
    add_usage_row(table, "total", total);
  }
  session.out.data({{"users", std::move(json)}, {"total", sum_json(total)}});
  return {};
}

}  // namespace

void declare_schedule_history(Command& history) {
  auto& options = history.keep<HistoryOptions>();
  history.about(
      "Adds up the finished tasks of each user and of all users: how they ended, the node-hours "
      "that they used, how many of those were lost (not saved when the task had to release its "
      "nodes), and the average wait before the first start. Unfinished tasks are not counted.");
  history.option("--since", duration(options.since_ns, "AGE"),
                 "Count only tasks that finished within this time, such as 7d");
  history.option("--user", text(options.user, "USER"), "Count only this user: a name or a uid");
  declare_scheduler(history, options.schedule);
  history.example("ff schedule history --since 7d", "the last week");
  history.blocking(kScheduleNs);
  history.run([&options, &history](Session& session) {
    return run_history(session, options, history.timeout_ns());
  });
}

}  // namespace ff::cmd

// `ff schedule quota`: limits the nodes of a partition that a user may hold at a priority.
#include "cmd/cli/many.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/schedule.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

struct QuotaOptions {
  ScheduleOptions schedule;
  std::string user;
  std::string group = "default";
  std::string priority = "30";
  uint32_t nodes = 0;
};

Result<void> ask_quota(Session& session, const QuotaOptions& options, int64_t timeout_ns,
                       const scheduler::wire::QuotaRequest& request) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const auto reply, client->call(scheduler::kQuota, request));
  const bool is_list = request.set().empty() && request.drop().empty();
  JsonList json(session.out, "quotas");
  {
    auto table = session.out.table(
        {{"USER"}, {"GROUP"}, {"PRIORITY", Align::right}, {"NODES", Align::right}});
    for (const auto& quota : reply.quotas()) {
      if (is_list) {
        table.row({quota.user(), quota.group(), fmt::to_string(quota.priority()),
                   fmt::to_string(quota.nodes())});
      }
      json.add({{"user", quota.user()},
                {"group", quota.group()},
                {"priority", quota.priority()},
                {"nodes", quota.nodes()}});
    }
  }
  json.end();
  if (is_list && reply.quotas().empty()) {
    session.out.note("no quotas: users may hold any number of nodes");
  }
  return {};
}

scheduler::wire::Quota quota_of(const QuotaOptions& options) {
  scheduler::wire::Quota quota;
  quota.set_user(options.user);
  quota.set_group(options.group);
  quota.set_priority(static_cast<uint32_t>(*parse_u64(options.priority)));
  quota.set_nodes(options.nodes);
  return quota;
}

void declare_place(Command& command, QuotaOptions& options) {
  command.option("--user", text(options.user, "USER"), "A user's name, or '*'").required();
  command.option("--group", text(options.group, "GROUP"), "Of nodes");
  command.option("--priority", choice(options.priority, {"50", "40", "30", "20", "10", "0"}),
                 "Of the tasks");
}

}  // namespace

void declare_schedule_quota(Command& schedule) {
  Command& quota = schedule.sub("quota", "How many nodes a user may hold");
  quota.about(
      "A quota says how many nodes of a group a user's tasks of one priority may hold together. "
      "That of '*' holds for each user who has none there; without any, as many as there are. "
      "Tasks that have nodes keep them when a quota becomes smaller.\n\n"
      "A task of priority 'auto' takes the highest priority at which its user has a quota with "
      "room. For the operator, who has the cluster key.");
  quota.example("ff schedule quota set --user '*' --priority 50 --nodes 0",
                "nobody has the highest priority");
  quota.example("ff schedule quota set --user ann --group h200 --priority 50 --nodes 16",
                "but ann, for 16 nodes");

  Command& list = quota.default_sub("list", "List the quotas");
  auto& listing = list.keep<QuotaOptions>();
  list.about("Lists all quotas.");
  declare_scheduler(list, listing.schedule);
  list.blocking(kScheduleNs);
  list.run([&listing, &list](Session& session) {
    return ask_quota(session, listing, list.timeout_ns(), scheduler::wire::QuotaRequest());
  });

  Command& set = quota.sub("set", "Set a quota, in place of one that is there");
  auto& setting = set.keep<QuotaOptions>();
  set.about("Holds from the scheduler's next decision on.");
  declare_place(set, setting);
  set.option("--nodes", number(setting.nodes), "At most so many; 0 is none").required();
  declare_scheduler(set, setting.schedule);
  set.blocking(kScheduleNs);
  set.run([&setting, &set](Session& session) {
    scheduler::wire::QuotaRequest request;
    *request.add_set() = quota_of(setting);
    return ask_quota(session, setting, set.timeout_ns(), request);
  });

  Command& drop = quota.sub("drop", "Remove a quota");
  auto& dropping = drop.keep<QuotaOptions>();
  drop.about("The user then has that of '*', if there is one. One that is not there is no error.");
  declare_place(drop, dropping);
  declare_scheduler(drop, dropping.schedule);
  drop.blocking(kScheduleNs);
  drop.run([&dropping, &drop](Session& session) {
    scheduler::wire::QuotaRequest request;
    *request.add_drop() = quota_of(dropping);
    return ask_quota(session, dropping, drop.timeout_ns(), request);
  });
}

}  // namespace ff::cmd

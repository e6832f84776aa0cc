// `ff schedule quota`: limits the nodes of a partition that a user may hold at a priority.
#include "cmd/cli/batch.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/schedule.h"
#include "platform/base/text.h"

namespace ff::cmd {
namespace {

constexpr std::string_view kQuotaOptions = "Options of quotas";

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
        {{"USER"}, {"PARTITION"}, {"PRIORITY", Align::right}, {"NODES", Align::right}});
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
  json.finish();
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
  command.option("--user", text(options.user, "USER"), "Name of a user, or '*' for all others")
      .required()
      .section(kQuotaOptions);
  command.option("--partition", text(options.group, "NAME"), "Partition of nodes")
      .alias("--group")
      .section(kQuotaOptions);
  command
      .option("--priority", choice(options.priority, {"50", "40", "30", "20", "10", "0"}),
              "Priority of the tasks")
      .section(kQuotaOptions);
}

}  // namespace

void declare_schedule_quota(Command& schedule) {
  Command& quota = schedule.sub("quota", "Show and set how many nodes users may hold");
  quota.about(
      "A quota is the number of nodes in a partition that the tasks of a user at one priority may "
      "hold together. The quota of '*' applies to each user without a quota of their own; without "
      "any quota there is no limit. If a quota becomes smaller, running tasks keep their "
      "nodes.\n\nA task of priority 'auto' gets the highest priority at which its user has a quota "
      "with room. Only the operator, who holds the cluster key, can set quotas.");
  quota.example("ff schedule quota set --user '*' --priority 50 --nodes 0",
                "nobody gets the highest priority");
  quota.example("ff schedule quota set --user ann --partition h200 --priority 50 --nodes 16",
                "except ann, for 16 nodes");

  Command& list = quota.default_sub("list", "List the quotas");
  auto& listing = list.keep<QuotaOptions>();
  list.about("Lists all quotas.");
  declare_scheduler(list, listing.schedule);
  list.blocking(kScheduleNs);
  list.run([&listing, &list](Session& session) {
    return ask_quota(session, listing, list.timeout_ns(), scheduler::wire::QuotaRequest());
  });

  Command& set = quota.sub("set", "Set a quota; it replaces an existing one");
  auto& setting = set.keep<QuotaOptions>();
  set.about("The quota applies from the next decision of the scheduler on.");
  declare_place(set, setting);
  set.option("--nodes", number(setting.nodes), "Maximum number of nodes; 0 means none").required();
  declare_scheduler(set, setting.schedule);
  set.blocking(kScheduleNs);
  set.run([&setting, &set](Session& session) {
    scheduler::wire::QuotaRequest request;
    *request.add_set() = quota_of(setting);
    return ask_quota(session, setting, set.timeout_ns(), request);
  });

  Command& drop = quota.sub("drop", "Remove a quota");
  auto& dropping = drop.keep<QuotaOptions>();
  drop.about(
      "The quota of '*', if there is one, then applies to the user. It is no error if the quota "
      "does not exist.");
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

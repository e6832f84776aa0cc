// `ff schedule nodes`, `drain` and `undrain`: lists nodes, and takes them out of service.
#include "cmd/cli/batch.h"
#include "cmd/schedule/client.h"
#include "cmd/schedule/format.h"
#include "cmd/schedule/schedule.h"
#include "platform/base/units.h"

namespace ff::cmd {
namespace {

struct NodesOptions {
  ScheduleOptions schedule;
};

struct DrainNodeOptions {
  ScheduleOptions schedule;
  std::vector<std::string> nodes;
  std::string reason;
};

Color state_color(const std::string& state) {
  if (state == "free") return Color::none;
  return state == "busy"                                ? Color::green
         : state == "clearing" || state == "validating" ? Color::yellow
                                                        : Color::red;
}

Result<void> run_nodes(Session& session, const NodesOptions& options, int64_t timeout_ns) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  FF_TRY(const auto nodes, client->nodes());
  JsonList json(session.out, "nodes");
  {
    auto table = session.out.table({{"NODE"},
                                    {"PARTITION"},
                                    {"ZONE"},
                                    {"LEAF"},
                                    {"TASK", Align::right},
                                    {"HEARD", Align::right},
                                    {"LABELS"},
                                    {"VALIDATED"},
                                    {"STATE"}});
    for (const auto& listed : nodes) {
      const auto& node = listed.node();
      const std::string state = node_state(listed);
      table.row({node.name(), node.group(), node.zone(), node.leaf(),
                 listed.task() == 0 ? "" : fmt::to_string(listed.task()),
                 listed.heard() < 0 ? "never" : format_duration(listed.heard()) + " ago",
                 fmt::format("{}", fmt::join(node.marks(), " ")),
                 validated_text(node, client->wall_ns()), Cell(state, state_color(state))});
      json.add(node_json(listed));
    }
  }
  json.finish();
  if (nodes.empty()) session.out.note("no nodes yet; a node joins when its agent reports");
  return {};
}

// Tries all, even if one fails.
Result<void> run_node_drain(Session& session, const DrainNodeOptions& options, int64_t timeout_ns,
                            bool drain) {
  FF_TRY(const auto client, SchedulerClient::open(session, options.schedule, timeout_ns));
  Failures failures(session.out);
  Json done = Json::array();
  for (const std::string& node : options.nodes) {
    scheduler::wire::DrainRequest request;
    request.set_node(node);
    request.set_drain(drain);
    request.set_why(options.reason);
    auto reply = client->call(scheduler::kDrain, request);
    if (reply) {
      done.push_back(node);
      continue;
    }
    Error error = std::move(reply).error();
    if (error.code == Errc::not_found) error.hint = "List them: ff schedule nodes";
    if (!failures.add(std::move(error))) break;
  }
  session.out.data({{"nodes", std::move(done)}});
  return failures.result();
}

void declare_node_drain(Command& command, DrainNodeOptions& options, bool drain) {
  command.argument("NODE", text(options.nodes, "NODE"), "Names of the nodes");
  declare_scheduler(command, options.schedule);
  command.blocking(kScheduleNs);
  command.run([&options, &command, drain](Session& session) {
    return run_node_drain(session, options, command.timeout_ns(), drain);
  });
}

}  // namespace

void declare_schedule_nodes(Command& schedule) {
  Command& nodes = schedule.sub("nodes", "List the nodes and their states");
  auto& options = nodes.keep<NodesOptions>();
  nodes.about(
      "Lists every node that has ever reported: its partition, zone and leaf switch, its task, the "
      "time since its last report, the result of its last 'ff validate', and its state:\n  free    "
      "      the scheduler can start tasks on it\n  busy          a task uses it\n  clearing      "
      "processes of a finished task are still running\n  validating    it runs its checks and "
      "returns within minutes\n  drained       out of service: by the operator, with the reason, "
      "or because checks failed\n  silent        no report for 10 seconds: it gets no new tasks\n  "
      "not heard of  no report since the scheduler started");
  declare_scheduler(nodes, options.schedule);
  nodes.example("ff schedule nodes", "all nodes");
  nodes.blocking(kScheduleNs);
  nodes.run([&options, &nodes](Session& session) {
    return run_nodes(session, options, nodes.timeout_ns());
  });

  Command& drain = schedule.sub("drain", "Take nodes out of service");
  auto& draining = drain.keep<DrainNodeOptions>();
  drain.about(
      "The nodes get no new tasks. The scheduler asks a task on one of them to save and release "
      "all of its nodes, and restarts it elsewhere. Only the operator, who holds the cluster key, "
      "can drain nodes.");
  drain.option("--reason", text(draining.reason, "TEXT"), "Reason, which the list of nodes shows")
      .required();
  drain.example("ff schedule drain node7 --reason 'bad memory, ticket 42'", "before a repair");
  declare_node_drain(drain, draining, true);

  Command& undrain = schedule.sub("undrain", "Put nodes back into service");
  auto& returning = undrain.keep<DrainNodeOptions>();
  undrain.about(
      "The nodes get tasks again, whether the operator or failed checks had drained them; the next "
      "failed check drains a node again. Only the operator, who holds the cluster key, can undrain "
      "nodes.");
  undrain.example("ff schedule undrain node7", "after the repair");
  declare_node_drain(undrain, returning, false);
}

}  // namespace ff::cmd

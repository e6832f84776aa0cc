// drain.cc: --drain, which reports the verdict of a run to the scheduler.
#include "cmd/validate/validate.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"

namespace ff::cmd {
namespace {

using scheduler::VerdictEffect;
using scheduler::wire::VerdictReply;

std::string_view effect_name(VerdictEffect effect) {
  switch (effect) {
    case VerdictEffect::none: break;
    case VerdictEffect::drained: return "drained";
    case VerdictEffect::returned: return "returned";
    case VerdictEffect::limit_reached: return "spared";
    case VerdictEffect::not_rechecked: return "unlooked";
  }
  return "none";
}

void say(Output& out, const VerdictReply& reply) {
  const auto& node = reply.node();
  const std::string& name = node.name();
  switch (static_cast<VerdictEffect>(reply.effect())) {
    case VerdictEffect::drained:
      out.note("node {} is drained: {}", name, node.verdict_text());
      break;
    case VerdictEffect::returned:
      out.note("node {} is no longer drained for failed checks", name);
      break;
    case VerdictEffect::limit_reached:
      out.warn(
          "node {} stays in service: {} nodes are drained for failed checks, and the limit is {} "
          "(--max-drained of 'ff schedule serve'); 'ff schedule drain {}' drains it",
          name, reply.out(), reply.most(), name);
      break;
    case VerdictEffect::not_rechecked:
      out.warn("node {} stays drained: this run did not check {}", name,
               fmt::join(node.failed(), ", "));
      break;
    case VerdictEffect::none:
      if (node.drained_by_verdict()) {
        out.note("node {} stays drained: {}", name, fmt::join(node.failed(), ", "));
      } else if (!node.drained()) {
        out.note("node {} stays in service", name);
      }
  }
  if (node.drained()) out.note("the operator has drained node {}: {}", name, node.drained_why());
}

}  // namespace

void declare_validate_drain(Command& run, DrainOptions& options) {
  run.flag("--drain", options.drain,
           "Report the verdict to the scheduler, which drains the node if it is bad, and undrains "
           "it when it is good");
  run.option(
      "--node", text(options.node, "NAME"),
      "With --drain: name of this node in the scheduler; without it the name of the machine");
  declare_scheduler(run, options.schedule);
}

Result<void> check_drain(const DrainOptions& options, bool recorded) {
  if (recorded && !options.node) {
    return Error{Errc::usage,
                 "--root and --log may show another machine: --drain also needs --node",
                 "Give the name that 'ff schedule nodes' shows."};
  }
  if (auto address = net::parse_address(options.schedule.scheduler); !address) {
    return std::move(address).error().with_context("--scheduler: ");
  }
  io::SystemDisk disk;
  FF_TRY(transport_options(disk, options.schedule.net, auth::Role::agent));
  return {};
}

Result<Json> report_to_scheduler(Session& session, const DrainOptions& options,
                                 const scheduler::wire::Verdict& verdict) {
  const std::string self = options.node.value_or(net::host_name());
  FF_TRY(const auto client,
         SchedulerClient::open(session, options.schedule, kScheduleNs, auth::Role::agent, self));
  scheduler::wire::VerdictRequest request;
  request.set_node(self);
  *request.mutable_verdict() = verdict;
  auto reply = client->call(scheduler::kVerdict, request);
  if (!reply) {
    Error error = std::move(reply).error();
    if (error.code == Errc::not_found) {
      error.hint = "'ff schedule nodes' lists them; --node names this one.";
    }
    return std::move(error).with_context("could not report to the scheduler: ");
  }
  say(session.out, *reply);
  const auto& node = reply->node();
  return Json{{"node", node.name()},
              {"effect", effect_name(static_cast<VerdictEffect>(reply->effect()))},
              {"drained", node.drained()},
              {"drained_by_verdict", node.drained_by_verdict()},
              {"failed", std::vector<std::string>(node.failed().begin(), node.failed().end())},
              {"drained_nodes", reply->out()},
              {"drained_nodes_max", reply->most()}};
}

}  // namespace ff::cmd

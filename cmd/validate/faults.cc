// `ff validate faults`, in development builds (-DFF_FAULTS=ON): injects faults and verifies that
// they are found.
#ifdef FF_FAULTS

#include <algorithm>

#include "cmd/validate/host_allreduce.h"
#include "cmd/validate/validate.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

using validate::Verdict;

struct FaultOptions {
  std::optional<std::string> inject;
};

// The findings of the check that must find the fault, worst first; empty: not found.
Result<std::optional<validate::Finding>> find(Session& session, const validate::NamedFault& fault,
                                              const std::string& scratch) {
  io::SystemDisk disk;
  const validate::SystemTree tree(disk, "/");
  const validate::ValidationRequest request{.only = {fault.check},
                                            .force = true,
                                            .scratch = scratch,
                                            .fault = fault.fault,
                                            .allreduce_ranks = host_allreduce_ranks()};
  FF_TRY(const auto report, validate::validate(tree, session.stop.clock(), session.stop, nullptr,
                                               request, [](const auto&) {}));
  for (const validate::Finding& finding : report.findings()) {
    const bool told =
        finding.verdict >= Verdict::degraded ||
        (fault.fault == validate::InjectedFault::hang && finding.verdict == Verdict::could_not_run);
    if (told) return std::optional(finding);
  }
  return std::optional<validate::Finding>();
}

Result<void> inject(Session& session, const FaultOptions& options) {
  FF_TRY(const NodeHistory node, open_node_history(session));
  std::vector<std::string> missed;
  Json all = Json::array();
  auto table = session.out.table({{"FAULT"}, {"WHAT"}, {"FOUND"}});
  for (const validate::NamedFault& fault : validate::all_faults()) {
    if (options.inject && *options.inject != fault.name) continue;
    FF_TRY(const auto found, find(session, fault, node.dir));
    if (!found) missed.emplace_back(fault.name);
    table.row({fault.name, fault.about,
               found ? fmt::format("{} {}: {}", found->name, found->part, found->found)
                     : std::string("not found")});
    all.push_back({{"fault", fault.name}, {"found", found.has_value()}});
  }
  session.out.data({{"faults", std::move(all)}});
  if (missed.empty()) return {};
  return fail(Errc::fault, "not found: {}", fmt::join(missed, ", "));
}

}  // namespace

void declare_validate_faults(Command& validate) {
  Command& faults = validate.sub("faults", "Inject faults, and check that ff finds them");
  auto& options = faults.keep<FaultOptions>();
  std::vector<std::string> names;
  for (const validate::NamedFault& fault : validate::all_faults()) names.emplace_back(fault.name);
  faults.about(
      "Injects one fault after the other, in this process only, and runs the check that must find "
      "it.");
  faults.option("--inject", choice(options.inject, names), "Inject only this fault");
  faults.blocking();
  faults.run([&options](Session& session) { return inject(session, options); });
}

}  // namespace ff::cmd

#endif

// `ff validate list`, `adopt` and `xid`: lists checks, records the parts of a node, explains an
// Xid.
#include <algorithm>

#include "cmd/validate/validate.h"
#include "ops/validate/inventory.h"
#include "ops/validate/parts.h"
#include "ops/validate/xid.h"
#include "platform/base/units.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {
namespace {

using validate::Inventory;

Result<void> list_checks(Session& session) {
  Json checks = Json::array();
  auto table = session.out.table({{"CHECK"}, {"COSTS"}, {"DEADLINE", Align::right}, {"WHAT"}});
  for (const validate::Check& check : validate::all_checks()) {
    const bool load = check.cost == validate::CheckCost::load;
    std::vector<std::string> deadlines;
    Json seconds = Json::object();
    for (const auto level :
         {validate::RunLevel::quick, validate::RunLevel::weekly, validate::RunLevel::burn_in}) {
      const int64_t deadline_ns = check.deadline_ns(level);
      if (load || deadlines.empty()) deadlines.push_back(format_duration(deadline_ns));
      seconds[validate::run_level_name(level)] = deadline_ns / kSecond;
    }
    table.row({check.name, load ? "a load" : "reads", fmt::format("{}", fmt::join(deadlines, ", ")),
               check.about});
    checks.push_back({{"name", check.name},
                      {"group", check.group()},
                      {"load", load},
                      {"deadline", std::move(seconds)},
                      {"about", check.about}});
  }
  session.out.data({{"checks", std::move(checks)}});
  return {};
}

struct AdoptOptions {
  bool dry_run = false;
};

// "", "new", "was …".
std::string change_of(const std::optional<Inventory>& before, const std::string& part,
                      const std::string& what) {
  if (!before) return "";
  const auto known = before->find(part);
  if (known == before->end()) return "new";
  return known->second == what ? "" : "was " + known->second;
}

Result<void> adopt(Session& session, const AdoptOptions& options) {
  io::SystemDisk disk;
  FF_TRY(NodeHistory node, open_node_history(session));
  FF_TRY(const auto before, node.history.inventory());
  const Inventory now = validate::collect_inventory(validate::SystemTree(disk, "/"));
  Json parts = Json::object(), gone = Json::array();
  {
    auto table = session.out.table({{"PART"}, {"WHAT"}, {"CHANGE"}});
    for (const auto& [part, what] : now) {
      table.row({part, what, change_of(before, part, what)});
      parts[part] = what;
    }
    for (const auto& [part, what] : before.value_or(Inventory())) {
      if (now.contains(part)) continue;
      table.row({part, what, {"gone", Color::yellow}});
      gone.push_back(part);
    }
  }
  for (const auto& [part, reason] : now) {
    if (!part.starts_with(validate::kUnreadablePrefix)) continue;
    session.out.warn("could not examine {}: {}. Run it as root.",
                     part.substr(validate::kUnreadablePrefix.size()), reason);
  }
  std::vector<std::string> unused;
  for (const auto& [part, what] : now) {
    if (what == validate::kNotInUse) unused.push_back(part);
  }
  if (!unused.empty()) {
    session.out.warn("these ports have no link, and ff skips them while they have none: {}",
                     fmt::join(unused, ", "));
  }
  session.out.data(
      {{"adopted", !options.dry_run}, {"parts", std::move(parts)}, {"gone", std::move(gone)}});
  if (options.dry_run) return {};
  FF_TRY(node.history.adopt(now, session.stop.clock().wall_ns()));
  session.out.note("recorded the parts of this node; its baselines start again");
  return {};
}

struct XidOptions {
  std::vector<int> codes;
};

Json xid_json(const validate::Xid& xid) {
  return {{"code", xid.code},
          {"about", xid.about},
          {"nvidia", {{"immediate", xid.immediate}, {"investigatory", xid.further}}},
          {"paper", {{"class", validate::xid_class_name(xid.of)}, {"count", xid.count}}},
          {"verdict", validate::verdict_name(validate::xid_verdict(xid))},
          {"actor", validate::xid_actor(xid)},
          {"action", validate::xid_hint(xid)}};
}

// "RESET_GPU, then CONTACT_SUPPORT".
std::string nvidia_actions(const validate::Xid& xid) {
  const std::string_view immediate = xid.immediate, further = xid.further;
  if (immediate.empty()) return further.empty() ? "no action" : std::string(further);
  if (further.empty() || further == immediate) return std::string(immediate);
  return fmt::format("{}, then {}", immediate, further);
}

void explain(Session& session, const validate::Xid& xid) {
  Output& out = session.out;
  const validate::Verdict verdict = validate::xid_verdict(xid);
  out.line(Color::bold, "Xid {}: {}", xid.code, xid.about);
  out.line("  NVIDIA's catalogue  {}", nvidia_actions(xid));
  const std::string_view action = validate::xid_class_action(xid.of);
  const bool by_analogy = xid.count == 0 && xid.of != validate::XidClass::none;
  out.line("  the paper           {}{}{}{}", by_analogy ? "like " : "",
           validate::xid_class_name(xid.of), action.empty() ? "" : ": ", action);
  if (xid.count > 0) {
    out.line("                      {} of 12,970 in a year of its cluster (Table VI)", xid.count);
  }
  out.line(color_of(verdict), "  ff                  {}", validate::verdict_name(verdict));
  out.line("  who acts            {}", validate::xid_actor(xid));
  out.line("  what to do          {}", validate::xid_hint(xid));
}

Json list_xids(Session& session) {
  Json all = Json::array();
  auto table = session.out.table({{"XID", Align::right},
                                  {"WHAT"},
                                  {"NVIDIA"},
                                  {"PAPER"},
                                  {"COUNT", Align::right},
                                  {"WHO ACTS"},
                                  {"VERDICT"}});
  for (const validate::Xid& xid : validate::xid_table()) {
    const validate::Verdict verdict = validate::xid_verdict(xid);
    table.row({fmt::format("{}", xid.code),
               xid.about,
               xid.immediate,
               std::string(validate::xid_class_name(xid.of)),
               fmt::format("{}", xid.count),
               std::string(validate::xid_actor(xid)),
               {std::string(validate::verdict_name(verdict)), color_of(verdict)}});
    all.push_back(xid_json(xid));
  }
  return all;
}

Result<void> explain_xids(Session& session, const XidOptions& options) {
  Json all = options.codes.empty() ? list_xids(session) : Json::array();
  std::vector<int> unknown;
  for (const int code : options.codes) {
    const validate::Xid* const xid = validate::find_xid(code);
    if (xid == nullptr) {
      unknown.push_back(code);
      continue;
    }
    explain(session, *xid);
    all.push_back(xid_json(*xid));
  }
  session.out.data({{"xids", std::move(all)}, {"unknown", unknown}});
  if (unknown.empty()) return {};
  Error error = fail(Errc::not_found, "ff does not know Xid {}", fmt::join(unknown, ", "));
  error.hint = fmt::format(
      "ff knows the codes 1 to {} of NVIDIA's catalogue; see whether a newer "
      "one has it: docs.nvidia.com/deploy/xid-errors",
      validate::xid_table().back().code);
  return error;
}

}  // namespace

void declare_validate_list(Command& validate) {
  Command& list = validate.sub("list", "List the checks");
  list.about(
      "Lists every check, its load on the node, and its deadlines: those of the levels quick, "
      "weekly and burn-in if they differ.");
  list.run([](Session& session) { return list_checks(session); });
}

void declare_validate_adopt(Command& validate) {
  Command& adopting = validate.sub("adopt", "Record the parts of this node");
  auto& options = adopting.keep<AdoptOptions>();
  adopting.about(
      "Records the current parts of the node: cores, memory modules, PCIe devices, ports, disks. "
      "From then on a missing part fails, a changed part is degraded, and ff skips the checks of "
      "parts that the node never had, unless --require names their group. ff records no fault: a "
      "fault that the node has now, it reports in later runs as well. ff compares values with runs "
      "since then. Run it as root, which can see all parts, and again after each change of the "
      "hardware.");
  adopting.flag("-n,--dry-run", options.dry_run,
                "Only show what would be recorded, and what has changed");
  adopting.example("ff validate adopt", "record the parts of this node");
  adopting.run([&options](Session& session) { return adopt(session, options); });
}

void declare_validate_xid(Command& validate) {
  Command& xid = validate.sub("xid", "Explain error codes (Xid) of NVIDIA's driver");
  auto& options = xid.keep<XidOptions>();
  xid.about(
      "Explains Xids from the kernel log, from two sources: NVIDIA's catalogue for A100 to GB200, "
      "and the classes of the Fire-Flyer paper (Tables V and VI). If they disagree, ff uses the "
      "stricter one. 'Like' a class means that the code is not in the paper's table. The verdict "
      "of 144 to 150 and of 154 is the worst that they can mean: in a log, the rest of the line "
      "decides. Without a code the command lists the whole catalogue.");
  xid.argument("CODE", number(options.codes, "CODE"), "Number after 'Xid' in the log").optional();
  xid.example("ff validate xid 79", "GPU has fallen off the bus");
  xid.example("ff validate xid 13 92 94", "several codes");
  xid.run([&options](Session& session) { return explain_xids(session, options); });
}

}  // namespace ff::cmd

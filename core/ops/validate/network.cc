// network.cc: ports, and the changes of their counters since the last run.
#include "ops/validate/network.h"

#include <algorithm>
#include <array>

#include "ops/validate/inventory.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

constexpr const char* kIb = "/sys/class/infiniband";
constexpr const char* kNet = "/sys/class/net";
constexpr const char* kBonds = "/proc/net/bonding";
constexpr const char* kCable =
    "Check the cable, its transceivers and the switch port; then replace the card.";
constexpr std::array kIbErrors = {
    "symbol_error",    "link_error_recovery",         "link_downed",
    "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"};
constexpr uint64_t kIffUp = 1;  // linux/if.h

std::optional<uint64_t> count_of(const SystemTree& tree, const std::string& path) {
  const auto text = tree.maybe_text(path);
  return text ? parse_u64(*text) : std::nullopt;
}

// "4: ACTIVE" -> "ACTIVE".
std::string after_colon(const std::optional<std::string>& text) {
  if (!text) return "";
  const size_t colon = text->find(": ");
  return printable(colon == text->npos ? *text : text->substr(colon + 2));
}

IbPort ib_port(const SystemTree& tree, const std::string& name, const std::string& at) {
  IbPort port{.name = name};
  port.state = after_colon(tree.maybe_text(at + "/state"));
  port.physical = after_colon(tree.maybe_text(at + "/phys_state"));
  port.link_layer = printable(tree.maybe_text(at + "/link_layer").value_or(""));
  port.rate = printable(tree.maybe_text(at + "/rate").value_or(""));
  port.rate_gbit = tree.maybe_number(at + "/rate").value_or(0);
  for (const std::string& gid : tree.list(at + "/gids")) {
    const auto text = tree.maybe_text(io::join(at + "/gids", gid));
    constexpr size_t kLength = 39;  // eight groups of four
    const bool is_gid = text && text->size() == kLength &&
                        text->find_first_not_of("0123456789abcdef:") == text->npos;
    if (is_gid && text->find_first_not_of("0:") != text->npos) port.gids++;
  }
  for (const char* const counter : kIbErrors) {
    const auto count = count_of(tree, fmt::format("{}/counters/{}", at, counter));
    if (count) port.errors.emplace_back(counter, *count);
  }
  return port;
}

// For a counter that should not grow. Its value from the boot phase is ignored: links come and go
// then.
Finding of_counter(const CheckContext& context, const char* check, std::string part,
                   std::optional<uint64_t> now, const char* what) {
  Finding finding{.name = check, .part = std::move(part)};
  if (!now) {
    finding.found = fmt::format("the count of {} cannot be read", what);
    finding.hint = "Check the counters of the port in /sys/class.";
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.value = static_cast<double>(*now);
  finding.source = "the port's counters";
  const CounterDelta growth = counter_delta(context, finding);
  if (!growth.since_run) {
    finding.found = fmt::format("{} {} since the boot, no run to compare with yet", *now, what);
    return finding;
  }
  finding.found = fmt::format("{:.0f} more {} ({} since the boot)", growth.more, what, *now);
  finding.expected = "none since the last run";
  if (growth.more == 0) return finding;
  finding.verdict = Verdict::degraded;
  finding.hint = kCable;
  return finding;
}

bool is_hardware(const SystemTree& tree, const std::string& name) {
  return tree.exists(fmt::format("{}/{}/device", kNet, name));
}

// Whether the port was not in use when the node was adopted: many have no cable.
bool is_unused(const CheckContext& context, std::string_view kind, const std::string& port) {
  if (!context.inventory) return false;
  const auto found = context.inventory->find(fmt::format("{} {}", kind, port));
  return found != context.inventory->end() && found->second == kNotInUse;
}

Finding of_port(const CheckContext& context, const IbPort& port) {
  Finding finding{.name = "network.ib", .part = port.name};
  finding.found = fmt::format("{}, {}, {}", port.state.empty() ? "state unknown" : port.state,
                              port.physical, port.rate);
  if (port.state.empty()) {
    finding.hint = fmt::format("See {} and the kernel log of its driver.", kIb);
    return finding;
  }
  if (port.rate_gbit > 0) {
    finding.value = port.rate_gbit * 1e9;
    finding.unit = "bit/s";
    finding.better = Better::higher;
  }
  finding.expected = "ACTIVE, LinkUp";
  finding.source = "sysfs";
  if (port.is_active() && port.gids > 0) {
    finding.verdict = Verdict::pass;
  } else if (port.is_active()) {
    finding.verdict = Verdict::degraded;
    finding.found += ", no GID";
    finding.hint = "Check the subnet manager, or for RoCE the address of the interface.";
  } else if (!port.has_link() && is_unused(context, "ib", port.name)) {
    finding.verdict = Verdict::skipped;
    finding.source = "adopted";
  } else {
    finding.verdict = Verdict::fail;
    finding.hint = port.physical == "LinkUp"
                       ? "The link is up but not configured: check the subnet manager (sminfo)."
                   : port.physical == "Disabled"
                       ? "The port was disabled: see ibportstate, or the firmware settings."
                       : kCable;
  }
  return finding;
}

Finding of_ethernet(const CheckContext& context, const NetPort& port) {
  Finding finding{.name = "network.ethernet", .part = port.name};
  if (!port.has_carrier) {
    finding.found = "its carrier cannot be read";
    finding.hint = fmt::format("Look at {}/{}/carrier.", kNet, port.name);
    return finding;
  }
  finding.expected = "a carrier, full duplex";
  finding.source = "sysfs";
  if (!*port.has_carrier) {
    const bool unused = is_unused(context, "net", port.name);
    finding.verdict = unused ? Verdict::skipped : Verdict::fail;
    finding.found = "no carrier";
    if (unused) finding.source = "adopted";
    if (!unused) finding.hint = kCable;
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.found = "speed unknown";
  if (port.speed_mbit > 0) {
    finding.value = port.speed_mbit * 1e6;
    finding.unit = "bit/s";
    finding.better = Better::higher;
    finding.found = value_text(*finding.value, finding.unit);
  }
  if (port.duplex == "half") {
    finding.verdict = Verdict::degraded;
    finding.found += ", half duplex";
    finding.hint = kCable;
  }
  return finding;
}

// Parses /proc/net/bonding.
struct BondPorts {
  int ports = 0;
  std::vector<std::string> down = {};
};

// Nothing: not written by the bonding driver.
std::optional<BondPorts> parse_bond(std::string_view text) {
  if (text.find("Bonding Mode: ") == text.npos) return std::nullopt;
  BondPorts found;
  std::string port;
  for (const std::string_view line : split(text, '\n')) {
    constexpr std::string_view kPort = "Slave Interface: ", kState = "MII Status: ";
    if (line.starts_with(kPort)) port = printable(line.substr(kPort.size()));
    if (!line.starts_with(kState) || port.empty())
      continue;  // the state of the bond itself comes first
    found.ports++;
    if (line.substr(kState.size()) != "up") found.down.push_back(port);
    port.clear();
  }
  return found;
}

Finding of_bond(const CheckContext& context, const std::string& bond) {
  Finding finding{.name = "network.bond", .part = bond};
  const std::string path = io::join(kBonds, bond);
  const auto found = parse_bond(context.tree.maybe_text(path).value_or(""));
  if (!found) {
    finding.found = "cannot be read";
    finding.hint = fmt::format("Look at {}.", path);
    return finding;
  }
  const auto& [ports, down] = *found;
  finding.value = ports - static_cast<double>(down.size());
  finding.found = ports == 0 ? std::string("has no ports")
                             : fmt::format("{:.0f} of {} ports are up", *finding.value, ports);
  if (!down.empty()) finding.found += fmt::format(", down: {}", fmt::join(down, ", "));
  finding.expected = "all ports up";
  finding.source = "the bonding driver";
  finding.verdict = *finding.value == 0 ? Verdict::fail
                    : down.empty()      ? Verdict::pass
                                        : Verdict::degraded;
  if (finding.verdict != Verdict::pass) finding.hint = kCable;
  return finding;
}

}  // namespace

std::vector<IbPort> ib_ports(const SystemTree& tree) {
  std::vector<IbPort> ports;
  for (const std::string& device : tree.list(kIb)) {
    const std::string all = fmt::format("{}/{}/ports", kIb, device);
    for (const std::string& port : tree.list(all, "")) {
      ports.push_back(ib_port(tree, fmt::format("{}/{}", device, port), io::join(all, port)));
    }
  }
  return ports;
}

bool IbPort::is_active() const { return state == "ACTIVE"; }
bool IbPort::has_link() const { return physical == "LinkUp" || physical == "LinkErrorRecovery"; }

std::vector<std::string> bonds(const SystemTree& tree) { return tree.list(kBonds); }

size_t ports_of_bond(const SystemTree& tree, const std::string& bond) {
  const auto found = parse_bond(tree.maybe_text(io::join(kBonds, bond)).value_or(""));
  return found ? static_cast<size_t>(found->ports) : 0;
}

std::vector<NetPort> net_ports(const SystemTree& tree) {
  std::vector<NetPort> ports;
  for (const std::string& name : tree.list(kNet)) {
    if (!is_hardware(tree, name)) continue;
    const std::string at = io::join(kNet, name);
    NetPort port{.name = name};
    const auto flags = tree.maybe_text(at + "/flags");
    port.is_up = flags && (std::strtoull(flags->c_str(), nullptr, 16) & kIffUp) != 0;
    const auto carrier = tree.maybe_text(at + "/carrier");
    if (carrier == "0" || carrier == "1") port.has_carrier = carrier == "1";
    port.mtu = tree.maybe_number(at + "/mtu").value_or(0);
    port.speed_mbit = std::max(tree.maybe_number(at + "/speed").value_or(0), 0.0);
    port.duplex = printable(tree.maybe_text(at + "/duplex").value_or(""));
    port.carrier_changes = count_of(tree, at + "/carrier_changes");
    const auto received = count_of(tree, at + "/statistics/rx_errors");
    const auto sent = count_of(tree, at + "/statistics/tx_errors");
    if (received && sent) port.errors = *received + *sent;
    ports.push_back(std::move(port));
  }
  return ports;
}

void check_network_ib(const CheckContext& context) {
  const auto ports = ib_ports(context.tree);
  for (const IbPort& port : ports) {
    context.report(of_port(context, port));
    for (const auto& [counter, count] : port.errors) {
      context.report(of_counter(context, "network.ib-errors",
                                fmt::format("{} {}", port.name, counter), count, "errors"));
    }
    if (!port.errors.empty()) continue;
    Finding none = of_counter(context, "network.ib-errors", port.name, std::nullopt, "errors");
    if (context.inventory && !context.inventory->contains("ib-errors")) {
      none.verdict = Verdict::skipped;  // software devices have no counters
      none.source = "adopted";
    }
    context.report(std::move(none));
  }
  if (!ports.empty()) return;
  context.report(missing_finding(context, "network.ib", "ib", "no InfiniBand or RoCE device"));
}

void check_network_ethernet(const CheckContext& context) {
  bool any = false;
  for (const NetPort& port : net_ports(context.tree)) {
    if (!port.is_up) continue;  // administratively down
    any = true;
    context.report(of_ethernet(context, port));
    context.report(of_counter(context, "network.flaps", port.name, port.carrier_changes,
                              "changes of its carrier"));
    context.report(of_counter(context, "network.errors", port.name, port.errors, "errors"));
  }
  if (any) return;
  context.report(
      missing_finding(context, "network.ethernet", "net", "no hardware Ethernet port is up"));
}

void check_network_bond(const CheckContext& context) {
  const auto all = bonds(context.tree);
  for (const std::string& bond : all) context.report(of_bond(context, bond));
  if (!all.empty()) return;
  context.report(missing_finding(context, "network.bond", "bond", "no bond"));
}

}  // namespace ff::validate

// network.cc: ports, and what their counters have done since the last run.
#include "check/network.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "check/inventory.h"
#include "io/files.h"

namespace ff::check {

namespace {

constexpr const char* kIb = "/sys/class/infiniband";
constexpr const char* kNet = "/sys/class/net";
constexpr const char* kBonds = "/proc/net/bonding";
constexpr const char* kCable =
    "Look at the cable, its transceivers and the port of the switch; then replace the card.";
constexpr std::array kIbErrors = {
    "symbol_error",    "link_error_recovery",         "link_downed",
    "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"};
constexpr uint64_t kIffUp = 1;  // linux/if.h

std::optional<uint64_t> count_of(const Tree& tree, const std::string& path) {
  const auto text = tree.maybe_text(path);
  return text ? parse_u64(*text) : std::nullopt;
}

// "4: ACTIVE" -> "ACTIVE".
std::string after_colon(const std::optional<std::string>& text) {
  if (!text) return "";
  const size_t colon = text->find(": ");
  return printable(colon == text->npos ? *text : text->substr(colon + 2));
}

IbPort ib_port(const Tree& tree, const std::string& name, const std::string& at) {
  IbPort port{.name = name};
  port.state = after_colon(tree.maybe_text(at + "/state"));
  port.physical = after_colon(tree.maybe_text(at + "/phys_state"));
  port.link_layer = printable(tree.maybe_text(at + "/link_layer").value_or(""));
  port.rate = printable(tree.maybe_text(at + "/rate").value_or(""));
  port.rate_gbit = tree.maybe_number(at + "/rate").value_or(0);
  for (const std::string& gid : tree.list(at + "/gids")) {
    const auto text = tree.maybe_text(io::join(at + "/gids", gid));
    if (text && text->find_first_not_of("0:") != text->npos) port.gids++;
  }
  for (const char* const counter : kIbErrors) {
    const auto count = count_of(tree, fmt::format("{}/counters/{}", at, counter));
    if (count) port.errors.emplace_back(counter, *count);
  }
  return port;
}

// Of a counter that should stand still. What it has counted while the machine was starting says
// nothing: links come and go then.
Finding of_counter(const Context& context, const char* check, std::string part,
                   std::optional<uint64_t> now, const char* what) {
  Finding finding{.name = check, .part = std::move(part)};
  if (!now) {
    finding.found = fmt::format("the count of {} cannot be read", what);
    return finding;
  }
  finding.verdict = Verdict::pass;
  finding.value = static_cast<double>(*now);
  finding.source = "the port's counters";
  const Growth growth = growth_of(context, finding);
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

bool is_hardware(const Tree& tree, const std::string& name) {
  return tree.exists(fmt::format("{}/{}/device", kNet, name));
}

Finding of_port(const IbPort& port) {
  Finding finding{.name = "network.ib", .part = port.name};
  finding.found = fmt::format("{}, {}, {}", port.state.empty() ? "state unknown" : port.state,
                              port.physical, port.rate);
  finding.value = port.rate_gbit * 1e9;
  finding.unit = "bit/s";
  finding.expected = "ACTIVE, LinkUp";
  finding.source = "sysfs";
  if (port.state.empty()) return finding;
  const bool active = port.state == "ACTIVE";
  finding.verdict = active ? Verdict::pass : Verdict::fail;
  if (!active && port.physical == "LinkUp") {
    finding.hint = "The link is up and not configured: look at the subnet manager (sminfo).";
  } else if (!active) {
    finding.hint = kCable;
  } else if (port.gids == 0) {
    finding.verdict = Verdict::degraded;
    finding.found += ", no GID";
    finding.hint = "Look at the subnet manager, or for RoCE at the address of the interface.";
  }
  return finding;
}

}  // namespace

std::vector<IbPort> ib_ports(const Tree& tree) {
  std::vector<IbPort> ports;
  for (const std::string& device : tree.list(kIb)) {
    const std::string all = fmt::format("{}/{}/ports", kIb, device);
    for (const std::string& port : tree.list(all, "")) {
      ports.push_back(ib_port(tree, fmt::format("{}/{}", device, port), io::join(all, port)));
    }
  }
  return ports;
}

std::vector<std::string> bonds(const Tree& tree) { return tree.list(kBonds); }

std::vector<NetPort> net_ports(const Tree& tree) {
  std::vector<NetPort> ports;
  for (const std::string& name : tree.list(kNet)) {
    if (!is_hardware(tree, name)) continue;
    const std::string at = io::join(kNet, name);
    NetPort port{.name = name};
    const auto flags = tree.maybe_text(at + "/flags");
    port.is_up = flags && (std::strtoull(flags->c_str(), nullptr, 16) & kIffUp) != 0;
    port.has_carrier = tree.maybe_text(at + "/carrier") == "1";
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

void check_network_ib(const Context& context) {
  const auto ports = ib_ports(context.tree);
  for (const IbPort& port : ports) {
    context.report(of_port(port));
    for (const auto& [counter, count] : port.errors) {
      context.report(of_counter(context, "network.ib-errors",
                                fmt::format("{} {}", port.name, counter), count, "errors"));
    }
    if (port.errors.empty()) {
      context.report(
          of_counter(context, "network.ib-errors", port.name, std::nullopt, "its errors"));
    }
  }
  if (!ports.empty()) return;
  context.report(nothing_of(context, "network.ib", "ib", "no InfiniBand or RoCE device"));
}

void check_network_ethernet(const Context& context) {
  bool any = false;
  for (const NetPort& port : net_ports(context.tree)) {
    if (!port.is_up) continue;  // nobody wants it
    any = true;
    Finding finding{.name = "network.ethernet", .part = port.name};
    if (port.speed_mbit > 0) finding.value = port.speed_mbit * 1e6;
    finding.unit = "bit/s";
    finding.expected = "a carrier, full duplex";
    finding.source = "sysfs";
    const bool half = port.duplex == "half";
    finding.found = !port.has_carrier ? std::string("no carrier")
                    : finding.value   ? value_text(*finding.value, finding.unit)
                                      : std::string("speed unknown");
    if (half) finding.found += ", half duplex";
    finding.verdict = !port.has_carrier ? Verdict::fail : half ? Verdict::degraded : Verdict::pass;
    if (finding.verdict != Verdict::pass) finding.hint = kCable;
    context.report(std::move(finding));
    context.report(of_counter(context, "network.flaps", port.name, port.carrier_changes,
                              "changes of its carrier"));
    context.report(of_counter(context, "network.errors", port.name, port.errors, "errors"));
  }
  if (any) return;
  context.report(
      nothing_of(context, "network.ethernet", "net", "no Ethernet port of hardware that is up"));
}

void check_network_bond(const Context& context) {
  const auto all = bonds(context.tree);
  if (all.empty()) {
    context.report(nothing_of(context, "network.bond", "bond", "no bond"));
  }
  for (const std::string& bond : all) {
    const auto text = context.tree.maybe_text(io::join(kBonds, bond));
    Finding finding{.name = "network.bond", .part = bond};
    if (!text) {
      finding.found = "cannot be read";
      context.report(std::move(finding));
      continue;
    }
    std::string port;
    std::vector<std::string> down;
    int ports = 0;
    for (const std::string_view line : split(*text, '\n')) {
      constexpr std::string_view kPort = "Slave Interface: ", kState = "MII Status: ";
      if (line.starts_with(kPort)) port = printable(line.substr(kPort.size()));
      if (!line.starts_with(kState) || port.empty()) continue;
      ports++;
      if (line.substr(kState.size()) != "up") down.push_back(port);
      port.clear();
    }
    finding.value = static_cast<double>(ports - static_cast<int>(down.size()));
    finding.found = fmt::format("{:.0f} of {} ports are up", *finding.value, ports);
    finding.expected = "all ports up";
    finding.source = "the bonding driver";
    finding.verdict = ports == 0 || down.size() == static_cast<size_t>(ports) ? Verdict::fail
                      : down.empty()                                          ? Verdict::pass
                                                                              : Verdict::degraded;
    if (!down.empty()) finding.found += fmt::format(", down: {}", fmt::join(down, ", "));
    if (finding.verdict != Verdict::pass) finding.hint = kCable;
    context.report(std::move(finding));
  }
}

}  // namespace ff::check

// pci.cc: both ends of each link, and error counters.
#include "ops/validate/pci.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "ops/validate/inventory.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

// The idle speed of the link of a GPU; it says nothing about the link.
constexpr double kIdleGt = 2.5;

std::optional<uint32_t> hex_of(const SystemTree& tree, const std::string& path) {
  const auto text = tree.maybe_text(path);
  if (!text || !text->starts_with("0x")) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] =
      std::from_chars(text->data() + 2, text->data() + text->size(), value, 16);
  if (error != std::errc()) return std::nullopt;
  return value;
}

PciKind kind_of(uint32_t code) {
  switch (code >> 8) {
    case 0x0300:
    case 0x0302: return PciKind::gpu;
    case 0x0200:
    case 0x0207: return PciKind::network;
    case 0x0108: return PciKind::nvme;
    case 0x1200: return PciKind::accelerator;
    default: return PciKind::other;
  }
}

constexpr double kMostLanes = 32;

// `which`: "current" or "max". None: unreadable, or no link ("Unknown", or width 0).
std::optional<PciLink> link_of(const SystemTree& tree, const std::string& device,
                               const char* which) {
  const auto gt = tree.maybe_number(fmt::format("{}/{}_link_speed", device, which));
  const auto lanes = tree.maybe_number(fmt::format("{}/{}_link_width", device, which));
  if (!gt || !lanes || *lanes < 1 || *lanes > kMostLanes) return std::nullopt;
  return PciLink{.gt = *gt, .lanes = static_cast<int>(*lanes)};
}

// A device that fell off the bus reads as all ones, and the kernel shows an impossible number of
// lanes.
bool answers(const SystemTree& tree, const std::string& device) {
  return tree.maybe_number(device + "/current_link_width").value_or(0) <= kMostLanes;
}

// The common capability of both ends, as far as known; none: the device does not tell.
std::optional<PciLink> best_of(const PciDevice& device) {
  if (!device.can || !device.port_can) return device.can;
  return PciLink{.gt = std::min(device.can->gt, device.port_can->gt),
                 .lanes = std::min(device.can->lanes, device.port_can->lanes)};
}

// Parses "TOTAL_ERR_COR 5" of a table of counters.
std::optional<uint64_t> total_of(const std::optional<std::string>& table) {
  if (!table) return std::nullopt;
  for (const std::string_view line : split(*table, '\n')) {
    if (!line.starts_with("TOTAL_ERR_")) continue;
    return parse_u64(line.substr(line.rfind(' ') + 1));
  }
  return std::nullopt;
}

Finding of_device(const char* check, const PciDevice& device) {
  return {.name = check, .part = fmt::format("{} {}", device.address, device.name())};
}

Finding of_link(const PciDevice& device) {
  Finding finding = of_device("pci.link", device);
  finding.found = device.link->text();
  finding.value = device.link->gt * device.link->lanes;
  finding.unit = "GT/s";
  // A virtual machine often does not see the port: then only the capability of the device is known.
  const auto best = best_of(device);
  if (!best) {
    finding.hint = "The device does not report its capability: compare it with others of its kind.";
    return finding;
  }
  finding.expected = best->text();
  finding.source = device.port_can ? "both ends of the link" : "the device, without the port above";
  const bool idle = device.kind == PciKind::gpu && device.link->gt == kIdleGt;
  const bool narrow = device.link->lanes < best->lanes;
  const bool slow = device.link->gt < best->gt && !idle;
  finding.verdict = narrow || slow ? Verdict::degraded : Verdict::pass;
  if (idle && best->gt > kIdleGt) finding.found += " (slow while the GPU is idle)";
  if (narrow || slow) {
    finding.hint =
        "Reseat the card or its riser and check the settings of the slot; then replace the card "
        "or the board.";
  }
  return finding;
}

// For a device that can have a link.
Finding of_no_link(const SystemTree& tree, const PciDevice& device) {
  Finding finding = of_device("pci.link", device);
  const std::string at = io::join(kPciDevices, device.address);
  const auto speed = tree.maybe_text(at + "/current_link_speed");
  const auto lanes = tree.maybe_number(at + "/current_link_width");
  const bool down = speed && lanes && (speed->starts_with("Unknown") || *lanes == 0);
  if (device.answers && !down) {
    finding.found = "its link cannot be read";
    finding.hint = "See the device: lspci -vv -s " + device.address;
    return finding;
  }
  finding.verdict = Verdict::fail;
  finding.found = device.answers ? "its link is down" : "no longer responds";
  finding.expected = device.can ? device.can->text() : "a link";
  finding.source = "PCI Express";
  finding.hint =
      "Find in the kernel log when it failed, and restart the node; if it stays away, "
      "reseat the card or replace it.";
  return finding;
}

}  // namespace

std::string_view pci_kind_name(PciKind kind) {
  switch (kind) {
    case PciKind::gpu: return "GPU";
    case PciKind::network: return "network card";
    case PciKind::nvme: return "NVMe disk";
    case PciKind::accelerator: return "accelerator";
    case PciKind::other: break;
  }
  return "device";
}

std::string PciLink::text() const { return fmt::format("{:g} GT/s x{}", gt, lanes); }

std::string PciDevice::name() const {
  return fmt::format("{} {:04x}:{:04x}", pci_kind_name(kind), vendor, device);
}

std::vector<PciDevice> pci_devices(const SystemTree& tree) {
  std::vector<PciDevice> devices;
  for (const std::string& address : tree.list(kPciDevices)) {
    const std::string link = io::join(kPciDevices, address);
    const std::string real = tree.follow(link);
    const std::string at = real.empty() ? link : real;
    PciDevice device{.address = address, .kind = kind_of(hex_of(tree, at + "/class").value_or(0))};
    device.vendor = hex_of(tree, at + "/vendor").value_or(0);
    device.device = hex_of(tree, at + "/device").value_or(0);
    const auto node = tree.maybe_number(at + "/numa_node");
    if (node && *node >= 0) device.numa_node = static_cast<int>(*node);
    device.answers = answers(tree, at);
    device.link = link_of(tree, at, "current");
    device.can = link_of(tree, at, "max");
    if (!real.empty()) device.port_can = link_of(tree, io::parent(real), "max");
    if (device.kind == PciKind::other && !device.link) continue;
    devices.push_back(std::move(device));
  }
  return devices;
}

PciErrors pci_errors(const SystemTree& tree, const std::string& address) {
  const std::string at = io::join(kPciDevices, address);
  const bool counts =
      std::ranges::any_of(std::array{"/aer_dev_correctable", "/aer_dev_nonfatal", "/aer_dev_fatal"},
                          [&](const char* const name) { return tree.exists(at + name); });
  return {.counts = counts,
          .correctable = total_of(tree.maybe_text(at + "/aer_dev_correctable")),
          .nonfatal = total_of(tree.maybe_text(at + "/aer_dev_nonfatal")),
          .fatal = total_of(tree.maybe_text(at + "/aer_dev_fatal"))};
}

void check_pci_link(const CheckContext& context) {
  bool any = false;
  for (const PciDevice& device : pci_devices(context.tree)) {
    const bool hangs_on_one = device.link || device.can || !device.answers;
    if (device.kind == PciKind::other || !hangs_on_one) continue;
    any = true;
    context.report(device.link ? of_link(device) : of_no_link(context.tree, device));
  }
  if (any) return;
  context.report(
      missing_finding(context, "pci.link", "link",
                      "no GPU, network card, NVMe disk or accelerator with a PCIe link"));
}

void check_pci_aer(const CheckContext& context) {
  bool any = false;
  for (const PciDevice& device : pci_devices(context.tree)) {
    const PciErrors errors = pci_errors(context.tree, device.address);
    if (!errors.counts) continue;
    any = true;
    Finding finding = of_device("pci.aer", device);
    if (!errors.correctable || !errors.nonfatal || !errors.fatal) {
      finding.found = "not all of its counters can be read";
      finding.hint = fmt::format("Look at {}/{}/aer_dev_*.", kPciDevices, device.address);
      context.report(std::move(finding));
      continue;
    }
    const uint64_t corrected = *errors.correctable;
    const uint64_t uncorrected = *errors.nonfatal + *errors.fatal;
    finding.value = static_cast<double>(corrected + uncorrected);
    const CounterDelta growth = counter_delta(context, finding);
    finding.found =
        fmt::format("{} corrected, {} uncorrected since the boot", corrected, uncorrected);
    if (growth.since_run) finding.found += fmt::format(", {:.0f} of them new", growth.more);
    finding.expected = fmt::format("none uncorrected, none {}", growth.since());
    finding.source = "the device's counters";
    finding.verdict = uncorrected > 0   ? Verdict::fail
                      : growth.more > 0 ? Verdict::degraded
                                        : Verdict::pass;
    if (finding.verdict != Verdict::pass) {
      finding.hint = "Reseat the card; if the count grows, replace the card, its riser or cable.";
    }
    context.report(std::move(finding));
  }
  if (any) return;
  context.report(
      missing_finding(context, "pci.aer", "aer",
                      "no device counts errors (CONFIG_PCIEAER is off, or a virtual machine)"));
}

}  // namespace ff::validate

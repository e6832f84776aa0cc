// pci_peer.cc: configuration spaces, and the switches above GPUs.
#include "ops/validate/pci_peer.h"

#include <algorithm>
#include <vector>

#include "ops/validate/pci.h"
#include "platform/base/bytes.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

bool is_compute(const PciDevice& device) {
  return device.kind == PciKind::gpu || device.kind == PciKind::accelerator;
}

// GPUs and accelerators with a link, and the network cards; empty without a GPU.
std::vector<PciDevice> peers(const SystemTree& tree) {
  std::vector<PciDevice> found = pci_devices(tree);
  std::erase_if(found, [](const PciDevice& device) {
    return !device.link || (!is_compute(device) && device.kind != PciKind::network);
  });
  if (std::ranges::none_of(found, is_compute)) found.clear();
  return found;
}

std::optional<PciConfig> config_at(const SystemTree& tree, const std::string& dir) {
  const auto bytes = tree.bytes(dir + "/config");
  return bytes ? std::optional(parse_pci_config(*bytes)) : std::nullopt;
}

// Addresses of switch ports above GPUs that redirect. Nothing: a port is unreadable.
std::optional<std::vector<std::string>> redirecting(const SystemTree& tree,
                                                    const std::vector<PciDevice>& devices) {
  std::vector<std::string> found;
  for (const PciDevice& device : devices) {
    if (!is_compute(device)) continue;
    std::string dir = io::parent(tree.follow(io::join(kPciDevices, device.address)));
    for (; tree.exists(dir + "/class"); dir = io::parent(dir)) {
      const auto config = config_at(tree, dir);
      if (!config || !config->whole) return std::nullopt;
      const std::string address = io::base_name(dir);
      const bool known = std::ranges::find(found, address) != found.end();
      if (config->is_switch_port && config->redirects && !known) found.push_back(address);
    }
  }
  std::ranges::sort(found);
  return found;
}

// "none", "identity", "translates": the slowest of these devices.
std::string iommu_of(const SystemTree& tree, const std::vector<PciDevice>& devices) {
  std::string worst = "none";
  for (const PciDevice& device : devices) {
    // Symlinks in a device folder are relative to its real path.
    const std::string dir = tree.follow(io::join(kPciDevices, device.address));
    const std::string group = tree.follow(dir + "/iommu_group");
    if (group.empty()) continue;
    const bool translates = tree.maybe_text(group + "/type").value_or("identity") != "identity";
    if (translates) return "translates";
    worst = "identity";
  }
  return worst;
}

bool adopted_as(const CheckContext& context, const std::string& part, std::string_view what) {
  if (!context.inventory) return false;
  const auto found = context.inventory->find(part);
  return found != context.inventory->end() && found->second == what;
}

// For a setting that costs bandwidth.
Finding slow(const CheckContext& context, Finding finding, const std::string& part,
             const char* what, const char* hint) {
  if (adopted_as(context, part, what)) {
    finding.verdict = Verdict::pass;
    finding.source = "adopted";
    return finding;
  }
  finding.verdict = Verdict::degraded;
  finding.hint = hint;
  return finding;
}

void check_ordering(const CheckContext& context, const PciDevice& device) {
  Finding finding{.name = "pci.ordering",
                  .part = fmt::format("{} {}", device.address, device.name())};
  const auto config = config_at(context.tree, io::join(kPciDevices, device.address));
  if (!config || !config->whole || !config->relaxed_ordering) {
    finding.found = "its configuration cannot be read";
    finding.hint = "Only root sees all of it: run it as root.";
    return context.report(std::move(finding));
  }
  finding.expected = "relaxed ordering on";
  finding.source = "its configuration";
  finding.verdict = Verdict::pass;
  finding.found = *config->relaxed_ordering ? "relaxed ordering on" : "relaxed ordering off";
  if (!*config->relaxed_ordering) {
    finding = slow(context, std::move(finding), "ordering " + device.address, "off",
                   "Allow Relaxed Ordering in the firmware. If the platform cannot: adopt.");
  }
  context.report(std::move(finding));
}

}  // namespace

PciConfig parse_pci_config(std::string_view bytes) {
  constexpr size_t kHead = 64, kStatus = 0x06, kFirst = 0x34, kExtended = 0x100;
  constexpr uint16_t kHasList = 1 << 4, kRelaxed = 1 << 4, kRedirect = 0x0c;
  constexpr uint8_t kExpress = 0x10, kDownstream = 6;
  constexpr uint16_t kAcs = 0x0d;
  const std::byte* const raw = as_bytes(bytes).data();
  PciConfig config{.whole = bytes.size() > kHead};
  if (bytes.size() < kHead || (load_le<uint16_t>(raw + kStatus) & kHasList) == 0) return config;
  size_t at = std::to_integer<size_t>(raw[kFirst]) & ~size_t{3};
  for (int i = 0; i < 48 && at >= kHead && at + 12 <= bytes.size(); i++) {
    if (std::to_integer<uint8_t>(raw[at]) == kExpress) {
      config.is_switch_port = (load_le<uint16_t>(raw + at + 2) >> 4 & 0xf) == kDownstream;
      config.relaxed_ordering = (load_le<uint16_t>(raw + at + 8) & kRelaxed) != 0;
    }
    at = std::to_integer<size_t>(raw[at + 1]) & ~size_t{3};
  }
  at = kExtended;
  for (int i = 0; i < 480 && at >= kExtended && at + 8 <= bytes.size(); i++) {
    const auto head = load_le<uint32_t>(raw + at);
    if ((head & 0xffff) == kAcs) {
      config.redirects = (load_le<uint16_t>(raw + at + 6) & kRedirect) != 0;
    }
    at = head >> 20;
  }
  return config;
}

void add_pci_peers(const SystemTree& tree, Inventory& inventory) {
  const auto devices = peers(tree);
  if (devices.empty()) return;
  bool seen = true;
  for (const PciDevice& device : devices) {
    const auto config = config_at(tree, io::join(kPciDevices, device.address));
    seen &= config && config->whole;
    if (!config || !config->relaxed_ordering) continue;
    inventory["ordering " + device.address] = *config->relaxed_ordering ? "on" : "off";
  }
  inventory["iommu"] = iommu_of(tree, devices);
  constexpr const char* kConfig = "the configuration of PCI devices";
  if (!seen) inventory[std::string(kUnreadablePrefix) + "ordering"] = kConfig;
  if (const auto ports = redirecting(tree, devices)) {
    inventory["acs"] = ports->empty() ? "direct" : "redirects";
  } else {
    inventory[std::string(kUnreadablePrefix) + "acs"] = kConfig;
  }
}

void check_pci_peer(const CheckContext& context) {
  const auto devices = peers(context.tree);
  if (devices.empty()) {
    return context.report({.name = "pci.peer",
                           .verdict = Verdict::skipped,
                           .found = "no GPU or accelerator with a PCIe link"});
  }
  for (const PciDevice& device : devices) check_ordering(context, device);
  Finding acs{.name = "pci.acs", .verdict = Verdict::pass, .expected = "no redirection"};
  acs.source = "switches above GPUs";
  const auto ports = redirecting(context.tree, devices);
  acs.found = "no switch above a GPU redirects";
  if (!ports) {
    acs.verdict = Verdict::could_not_run;
    acs.found = "the configuration of switches cannot be read";
    acs.hint = "Only root sees all of it: run it as root.";
  } else if (!ports->empty()) {
    acs.found = fmt::format("traffic between GPUs is redirected to the root complex: {}",
                            fmt::join(*ports, ", "));
    acs = slow(context, std::move(acs), "acs", "redirects",
               "Disable ACS in the firmware, or for these ports with setpci. A host that passes "
               "GPUs to virtual machines needs it: adopt.");
  }
  context.report(std::move(acs));
  Finding iommu{.name = "pci.iommu", .verdict = Verdict::pass, .expected = "none, or identity"};
  iommu.source = "groups of the IOMMU";
  iommu.found = iommu_of(context.tree, devices);
  if (iommu.found == "translates") {
    iommu = slow(context, std::move(iommu), "iommu", "translates",
                 "Boot with iommu=pt: now every transfer of a GPU or network card is translated.");
  }
  context.report(std::move(iommu));
}

}  // namespace ff::validate

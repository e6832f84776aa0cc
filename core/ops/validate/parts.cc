// parts.cc: collects the parts of each kind, and compares them with the inventory.
#include "ops/validate/parts.h"

#include <algorithm>

#include "ops/validate/gpu.h"
#include "ops/validate/host.h"
#include "ops/validate/inventory.h"
#include "ops/validate/network.h"
#include "ops/validate/pci.h"
#include "ops/validate/pci_peer.h"
#include "ops/validate/smart.h"
#include "ops/validate/storage.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::validate {

namespace {

constexpr const char* kAdopt = "If the node is right as it is now: ff validate adopt";

std::string_view kind_of_part(std::string_view key) { return key.substr(0, key.find(' ')); }

void add_memory(const SystemTree& tree, Inventory& all) {
  const auto modules = dimms(tree);
  if (!modules) {
    for (const char* const kind : {"dimm", "memory"}) {
      all[std::string(kUnreadablePrefix) + kind] = modules.error().message;
    }
    return;
  }
  uint64_t memory = 0;
  for (const Dimm& dimm : *modules) {
    memory += dimm.bytes;
    all["dimm " + dimm.slot] =
        fmt::format("{} {} MT/s", format_size(dimm.bytes), dimm.configured_mts);
  }
  if (memory > 0) all["memory"] = format_size(memory);
}

void add_devices(const SystemTree& tree, Inventory& all) {
  for (const PciDevice& device : pci_devices(tree)) {
    if (device.kind != PciKind::other) all["pci " + device.address] = device.name();
    if (device.kind != PciKind::other && device.link) all["link"] = "told";
    if (pci_errors(tree, device.address).counts) all["aer"] = "counted";
  }
  for (const PciDevice& gpu : nvidia_gpus(tree)) {
    all["gpu " + gpu.address] = fmt::format("{:04x}:{:04x}", gpu.vendor, gpu.device);
  }
  for (const IbPort& port : ib_ports(tree)) {
    // A link that is up but not active is a fault, which adoption does not record.
    const bool in_use = port.is_active() || port.has_link();
    all["ib " + port.name] =
        in_use ? fmt::format("{} {}", port.link_layer, port.rate) : std::string(kNotInUse);
    if (!port.errors.empty()) all["ib-errors"] = "counted";
  }
  for (const NetPort& port : net_ports(tree)) {
    if (!port.is_up) continue;
    if (!port.has_carrier.value_or(false)) {
      all["net " + port.name] = kNotInUse;
      continue;
    }
    const std::string speed = port.speed_mbit > 0 ? fmt::format("{:g} Mbit/s", port.speed_mbit)
                                                  : std::string("speed unknown");
    all["net " + port.name] = fmt::format("{}, MTU {:g}", speed, port.mtu);
  }
  for (const std::string& bond : bonds(tree)) {
    all["bond " + bond] = fmt::format("{} ports", ports_of_bond(tree, bond));
  }
  add_pci_peers(tree, all);
  if (!smart_disks(tree).empty()) all["smart"] = "told";
  if (!mounted_disks(tree).empty()) all["fs"] = "mounted";
  for (const DiskFacts& disk : disks(tree)) {
    all["disk " + (disk.serial.empty() ? disk.name : disk.serial)] = disk.model;
    if (!disk.state.empty()) all["disk-state"] = "told";
  }
}

}  // namespace

Inventory collect_inventory(const SystemTree& tree) {
  Inventory all;
  const CpuFacts cpus = cpu_facts(tree);
  all["cores"] = fmt::format("{}", cpus.online.size());
  if (const size_t nodes = numa_nodes(tree); nodes > 0) all["nodes"] = fmt::format("{}", nodes);
  if (cpus.counts_throttling) all["throttle"] = "counted";
  if (cpus.has_cpufreq) all["cpufreq"] = "driven";
  if (!memory_controllers(tree).empty()) all["edac"] = "counted";
  add_memory(tree, all);
  add_devices(tree, all);
  return all;
}

void check_host_inventory(const CheckContext& context) {
  if (!context.inventory) {
    return context.report(
        {.name = "host.inventory",
         .found = "this node was never adopted",
         .hint = "Check that all its parts are present, then: ff validate adopt"});
  }
  const Inventory now = collect_inventory(context.tree);
  size_t right = 0, recorded = 0;
  for (const auto& [part, what] : *context.inventory) {
    if (part.starts_with(kUnreadablePrefix)) continue;
    recorded++;
    const auto found = now.find(part);
    const bool unused = what == kNotInUse;  // a cable may be plugged in later
    if (found != now.end() && (found->second == what || unused)) {
      right++;
      continue;
    }
    Finding finding{.name = "host.inventory", .part = part, .expected = what, .source = "adopted"};
    const auto unseen = now.find(std::string(kUnreadablePrefix).append(kind_of_part(part)));
    if (found == now.end() && unseen != now.end()) {
      finding.found = unseen->second;
      finding.hint = "Run it as root.";
    } else if (found == now.end()) {
      finding.verdict = Verdict::fail;
      finding.found = "is gone";
      finding.hint = "Search the kernel log for it; reseat or replace it.";
    } else {
      finding.verdict = Verdict::degraded;
      finding.found = found->second;
      finding.hint = fmt::format("Find out why it changed. {}", kAdopt);
    }
    context.report(std::move(finding));
  }
  for (const auto& [part, what] : now) {
    if (part.starts_with(kUnreadablePrefix) || context.inventory->contains(part)) continue;
    context.report({.name = "host.inventory",
                    .part = part,
                    .verdict = Verdict::pass,
                    .found = what + ", new",
                    .source = "adopted",
                    .hint = kAdopt});
  }
  if (right < recorded) return;  // the rest was reported above
  Finding all{.name = "host.inventory", .verdict = Verdict::pass, .source = "adopted"};
  all.value = static_cast<double>(right);
  all.found = fmt::format("{} of {} parts as recorded", right, recorded);
  all.expected = "all";
  context.report(std::move(all));
}

}  // namespace ff::validate

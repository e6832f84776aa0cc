// Settings for full-speed peer-to-peer traffic of GPUs and network cards: PCIe Relaxed Ordering
// (Fire-Flyer paper, III-B), no ACS redirection in switches between GPUs, and an IOMMU that does
// not translate.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ops/validate/check.h"
#include "ops/validate/inventory.h"
#include "ops/validate/system_tree.h"

namespace ff::validate {

// The configuration space of a device (PCI Express Base Specification, chapter 7).
struct PciConfig {
  bool whole = false;                         // an unprivileged user reads only the first 64 bytes
  std::optional<bool> relaxed_ordering = {};  // none: not a PCI Express device
  bool is_switch_port = false;                // a downstream port of a switch
  bool redirects = false;  // ACS redirects peer-to-peer requests to the root complex
};
PciConfig parse_pci_config(std::string_view bytes);

// Adds to an inventory, if there are GPUs: "ordering ADDRESS" -> "on", "off"; "acs" -> "direct",
// "redirects"; "iommu" -> "none", "identity", "translates".
void add_pci_peers(const SystemTree& tree, Inventory& inventory);

// A setting that costs bandwidth is degraded, unless the node was adopted with it.
void check_pci_peer(const CheckContext& context);

}  // namespace ff::validate

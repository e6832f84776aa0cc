// What lets GPUs and network cards reach memory and one another at full speed: PCIe Relaxed
// Ordering (the paper, section III-B, turned it on), no redirection by ACS in switches between
// GPUs, and an IOMMU that does not translate.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ops/validate/check.h"
#include "ops/validate/inventory.h"
#include "ops/validate/tree.h"

namespace ff::validate {

// Of a device's configuration space (PCI Express Base Specification, chapter 7).
struct PciConfig {
  bool whole = false;                         // an ordinary user sees the first 64 bytes alone
  std::optional<bool> relaxed_ordering = {};  // none: no PCI Express device
  bool is_switch_port = false;                // a downstream port of a switch
  bool redirects = false;  // ACS sends requests between devices below it up to the root first
};
PciConfig parse_pci_config(std::string_view bytes);

// Adds to an inventory, where there are GPUs: "ordering ADDRESS" -> "on", "off";
// "acs" -> "direct", "redirects"; "iommu" -> "none", "identity", "translates".
void add_pci_peers(const Tree& tree, Inventory& inventory);

// What slows it down is degraded, unless the node was adopted like that.
void check_pci_peer(const Context& context);

}  // namespace ff::validate

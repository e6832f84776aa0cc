// PCI Express devices that matter for performance: GPUs, network cards, NVMe disks, accelerators;
// their links and error counters (sysfs, Documentation/ABI/testing: sysfs-bus-pci,
// sysfs-bus-pci-devices-aer_stats).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/system_tree.h"

namespace ff::validate {

constexpr const char* kPciDevices = "/sys/bus/pci/devices";

enum class PciKind : uint8_t { gpu, network, nvme, accelerator, other };
std::string_view pci_kind_name(PciKind kind);  // "GPU"

// A link, or the capability of one end: 16 GT/s x16.
struct PciLink {
  double gt = 0;  // GT/s per lane
  int lanes = 0;
  std::string text() const;
  bool operator==(const PciLink&) const = default;
};

struct PciDevice {
  std::string address;  // "0000:17:00.0"
  PciKind kind = PciKind::other;
  uint32_t vendor = 0, device = 0;
  std::optional<int> numa_node = {};  // none: the firmware does not say
  std::optional<PciLink> link =
      {};               // none: it hangs on no link (a part of the processor, a guest's)
  bool answers = true;  // false: it fell off the bus
  std::optional<PciLink> can = {};       // the device
  std::optional<PciLink> port_can = {};  // the port above
  std::string name() const;              // "GPU 10de:20b2"
};
// Sorted by address. Devices of kind `other` only if they have a link.
std::vector<PciDevice> pci_devices(const SystemTree& tree);

// Error counters of a device, since boot.
struct PciErrors {
  bool counts = false;  // the kernel counts them
  // None: unreadable.
  std::optional<uint64_t> correctable = {}, nonfatal = {}, fatal = {};
};
PciErrors pci_errors(const SystemTree& tree, const std::string& address);

void check_pci_link(const CheckContext& context);
void check_pci_aer(const CheckContext& context);

}  // namespace ff::validate

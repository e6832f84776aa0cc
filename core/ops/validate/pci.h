// PCI Express devices that programs wait for: GPUs, network cards, NVMe disks, accelerators; the
// links that they hang on, and the errors that those have counted (sysfs,
// Documentation/ABI/testing: sysfs-bus-pci, sysfs-bus-pci-devices-aer_stats).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/tree.h"

namespace ff::validate {

constexpr const char* kPciDevices = "/sys/bus/pci/devices";

enum class PciKind : uint8_t { gpu, network, nvme, accelerator, other };
std::string_view pci_kind_name(PciKind kind);  // "GPU"

// A link, or what an end of one can do: 16 GT/s x16.
struct PciLink {
  double gt = 0;  // GT/s a lane
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
  bool answers = true;  // false: it has gone from the bus
  std::optional<PciLink> can = {};       // the device
  std::optional<PciLink> port_can = {};  // the port above
  std::string name() const;              // "GPU 10de:20b2"
};
// Sorted by address. Of `other` only those with a link.
std::vector<PciDevice> pci_devices(const Tree& tree);

// Errors since the boot, of a device.
struct PciErrors {
  bool counts = false;  // whether the kernel counts them
  // None: cannot be read.
  std::optional<uint64_t> correctable = {}, nonfatal = {}, fatal = {};
};
PciErrors pci_errors(const Tree& tree, const std::string& address);

void check_pci_link(const Context& context);
void check_pci_aer(const Context& context);

}  // namespace ff::validate

// Collects the parts of this node, of every kind, and compares them with the adopted inventory
// (inventory.h).
#pragma once

#include "ops/validate/check.h"

namespace ff::validate {

// All present parts, by kind and name:
//   "cores"              "64"
//   "nodes"              "2"                (NUMA nodes)
//   "memory"             "512GiB"           (sum of the modules; missing where unknown)
//   "dimm DIMM_A1"       "64GiB 3200 MT/s"
//   "pci 0000:17:00.0"   "GPU 10de:20b2"
//   "gpu 0000:17:00.0"   "10de:20b2"        (NVIDIA GPUs, again)
//   "ib mlx5_0/1"        "InfiniBand 200 Gb/sec (4X HDR)"
//   "net eth0"           "1000 Mbit/s, MTU 1500"
//   "bond bond0"         "2 ports"
//   "disk SERIAL"        "model"
// and the sources that this machine has: "aer", "cpufreq", "disk-state", "edac", "fs", "ib-errors",
// "link", "smart", "throttle", and those of pci_peer.h. It says what hardware there is, and nothing
// about faults, so that adoption never hides one. A kind that the user may not examine is not
// recorded as absent: "unseen dimm" and the reason.
Inventory collect_inventory(const SystemTree& tree);

// Recorded and missing: fail. Recorded and different: degraded. Present and not recorded: a remark.
void check_host_inventory(const CheckContext& context);

}  // namespace ff::validate

// The parts that this node has now, of every kind, and what has changed since they were recorded
// (inventory.h).
#pragma once

#include "ops/validate/check.h"

namespace ff::validate {

// All parts that are there now, by kind and name:
//   "cores"              "64"
//   "nodes"              "2"                (of memory, NUMA)
//   "memory"             "512GiB"           (of the modules; missing where they are unknown)
//   "dimm DIMM_A1"       "64GiB 3200 MT/s"
//   "pci 0000:17:00.0"   "GPU 10de:20b2"
//   "gpu 0000:17:00.0"   "10de:20b2"        (NVIDIA's, the same ones)
//   "ib mlx5_0/1"        "InfiniBand 200 Gb/sec (4X HDR)"
//   "net eth0"           "1000 Mbit/s, MTU 1500"
//   "bond bond0"         "2 ports"
//   "disk SERIAL"        "model"
// and what this machine can tell of itself: "aer", "clock", "cpufreq", "disk-state", "edac", "fs",
// "ib-errors", "link", "smart", "throttle", and those of pci_peer.h. What it may not see, it does
// not record as absent: "unseen dimm" and why.
Inventory take_inventory(const Tree& tree);

// Recorded and gone: fail. Recorded and different: degraded. There and not recorded: a remark.
void check_host_inventory(const Context& context);

}  // namespace ff::validate

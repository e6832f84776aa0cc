// What a node has: its parts by kind and name, as they were when an operator said that all is there
// (`ff validate adopt`), and held against every run since. So a GPU that fell off the bus is not
// "no GPU", and a node that never had one is green.
#pragma once

#include <string>
#include <string_view>

#include "check/check.h"

namespace ff::check {

constexpr std::string_view kUnused = "not in use";  // a port, when the node was adopted
constexpr std::string_view kUnseen = "unseen ";     // before a kind that could not be looked at

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

// Nothing of a kind is there. Skipped where that was recorded, fail where something was; and
// could-not-run on a node that was never adopted, or adopted by somebody who could not see it.
Finding nothing_of(const Context& context, const char* check, std::string_view kind,
                   std::string found);

// Recorded and gone: fail. Recorded and different: degraded. There and not recorded: a remark.
void check_host_inventory(const Context& context);

}  // namespace ff::check

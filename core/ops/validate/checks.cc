// checks.cc: the table of all checks. A new check is a function in the file of its group, a line
// here, and a test without its input in tests/ops/validate/blind_test.cc.
#include <array>

#include "ops/validate/check.h"
#include "ops/validate/gpu.h"
#include "ops/validate/gpu_load.h"
#include "ops/validate/host.h"
#include "ops/validate/inventory.h"
#include "ops/validate/load.h"
#include "ops/validate/log_rules.h"
#include "ops/validate/network.h"
#include "ops/validate/parts.h"
#include "ops/validate/pci.h"
#include "ops/validate/pci_peer.h"
#include "ops/validate/smart.h"
#include "ops/validate/storage.h"

namespace ff::validate {

namespace {

using enum CheckCost;

constexpr int64_t kSoon = 10 * kSecond;
constexpr int64_t kMinute = 60 * kSecond;

constexpr std::array kChecks = {
    Check{"host.inventory", "parts that were adopted: gone, changed, new", reads, kSoon, 0.2, 100,
          check_host_inventory},
    Check{"host.cpu", "cores online, one model and microcode", reads, kSoon, 0.1, 90,
          check_host_cpu},
    Check{"host.throttle", "cores slowed down by heat since the last run", reads, kSoon, 0.1, 80,
          check_host_throttle},
    Check{"host.frequency", "how frequencies are driven, and what limits them", reads, kSoon, 0.1,
          60, check_host_frequency},
    Check{"host.memory", "size against the modules", reads, kSoon, 0.1, 80, check_host_memory},
    Check{"host.dimms", "speed of each memory module", reads, kSoon, 0.1, 60, check_host_dimms},
    Check{"host.clock", "synchronised, and how far off", reads, kSoon, 0.1, 50, check_host_clock},
    Check{"host.kernel", "taints by hardware, programs killed for memory", reads, kSoon, 0.1, 80,
          check_host_kernel},
    Check{"host.space", "free space and inodes of file systems", reads, kSoon, 0.1, 70,
          check_host_space},
    Check{"host.processes", "dead processes, and those left behind with memory or GPUs", reads,
          kSoon, 0.2, 40, check_host_processes},
    Check{"memory.edac", "errors that memory controllers have counted", reads, kSoon, 0.1, 100,
          check_memory_edac},
    Check{"memory.pattern", "every bit of a share of free memory", load, kMinute, 3, 60,
          check_memory_pattern},
    Check{"memory.stream", "bandwidth of copy, scale, add and triad", load, kMinute, 2, 60,
          check_memory_stream},
    Check{"cpu.kernels", "known results on every core, and their speed", load, kMinute, 2, 70,
          check_cpu_kernels},
    Check{"pci.link", "speed and width of links against what both ends can do", reads, kSoon, 0.2,
          100, check_pci_link},
    Check{"pci.aer", "errors that devices have counted", reads, kSoon, 0.2, 90, check_pci_aer},
    Check{"gpu.health", "GPUs against PCI; ECC, rows, heat, NVLink, errors of NVML", reads,
          15 * kSecond, 2, 100, check_gpu_health},
    Check{"gpu.memory", "every bit of all free memory of GPUs, and its ECC errors", load, kMinute,
          5, 60, check_gpu_memory},
    Check{"gpu.gemm", "known products on every GPU in each type, and their speed", load, kMinute, 5,
          70, check_gpu_gemm},
    Check{"gpu.copy", "copies to and from GPUs against PCIe, NVLink and their memory", load,
          3 * kMinute, 4, 60, check_gpu_copy},
    Check{"pci.peer", "relaxed ordering, ACS and IOMMU, which slow GPUs down", reads, kSoon, 0.2,
          70, check_pci_peer},
    Check{"network.ib", "state of InfiniBand and RoCE ports, and their errors", reads, kSoon, 0.2,
          100, check_network_ib},
    Check{"network.ethernet", "carrier, duplex, flaps and errors of ports", reads, kSoon, 0.2, 80,
          check_network_ethernet},
    Check{"network.bond", "ports of bonds", reads, kSoon, 0.1, 60, check_network_bond},
    Check{"storage.fs", "errors of file systems, mounts that went read-only", reads, kSoon, 0.1, 90,
          check_storage_fs},
    Check{"storage.disks", "state of disks", reads, kSoon, 0.1, 80, check_storage_disks},
    Check{"storage.health", "what NVMe and ATA disks say of their own health and wear", reads,
          30 * kSecond, 0.5, 90, check_storage_health},
    Check{"storage.speed", "a file written, read back and checked; small reads", load, kMinute, 3,
          60, check_storage_speed},
    Check{"collective.reduce", "a sum over all cores: every value, and its bandwidth", load,
          kMinute, 1, 60, check_collective_reduce},
    Check{"log.kernel", "the kernel's log since the last run: Xid, machine checks, PCIe, disks",
          reads, kSoon, 0.3, 100, check_log},
};

}  // namespace

std::span<const Check> all_checks() { return kChecks; }

}  // namespace ff::validate

// Placement of memory and threads on machines with several NUMA nodes (Linux,
// Documentation/admin-guide/mm/numa_memory_policy.rst; mbind(2), sched_setaffinity(2)):
//
//   inputs and outputs of ranks     interleaved over all nodes: the threads of all ranks use them
//   receive windows                 on the node of the network card
//   threads of a rank               on all CPUs of one node; ranks are distributed in order
//   thread for other hosts          on the card's node
//
// Placement is an optimization: errors and missing information are ignored, and on one node nothing
// is done. A process that may use fewer CPUs than the machine has (container, taskset) uses no
// others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::collective {

struct NumaNode {
  uint32_t number = 0;
  std::vector<unsigned> cpus = {};
};
// Nodes with memory and CPUs, by number; empty when `sysfs` ("/sys") does not list them.
std::vector<NumaNode> numa_nodes(io::Disk& disk, const std::string& sysfs);

// The network card of connections to other hosts.
struct Nic {
  std::string rdma_device = {};  // "mlx5_0"; empty: none
  std::string address = {};      // without a device: numeric address of the interface
};
// The card's NUMA node; nothing when it is unknown.
std::optional<uint32_t> numa_node_of(io::Disk& disk, const std::string& sysfs, const Nic& nic);

// The name of this host's interface with that address, "eth0"; empty: none.
std::string interface_of(const std::string& address);

// Memory policy of untouched whole pages of shared memory, for all processes that map it:
// interleaved over these nodes, or on `node` while it has free pages. Errors: those of mbind.
Result<void> interleave(ByteSpan memory, const std::vector<NumaNode>& nodes);
Result<void> prefer_node(ByteSpan memory, uint32_t node);
// Restricts the calling thread to those of the CPUs that it may use now; no change when it may use
// none of them. Errors: those of sched_setaffinity.
Result<void> pin_to_cpus(const std::vector<unsigned>& cpus);

// The same by purpose.
class NumaPlacement {
 public:
  NumaPlacement() = default;  // does nothing
  // `pin_threads`: place threads as well as memory.
  NumaPlacement(std::vector<NumaNode> nodes, bool pin_threads);

  void interleave_all(ByteSpan memory) const;
  void bind_near_nic(ByteSpan memory, std::optional<uint32_t> nic_node) const;
  // The calling thread.
  void pin_rank(uint32_t local_rank, uint32_t local_ranks) const;
  void pin_near_nic(std::optional<uint32_t> nic_node) const;

 private:
  std::vector<NumaNode> nodes_;  // empty, or at least two
  bool pin_threads_ = false;
};

}  // namespace ff::collective

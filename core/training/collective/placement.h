// Where memory and threads are best on a machine with several NUMA nodes (Linux,
// Documentation/admin-guide/mm/numa_memory_policy.rst; mbind(2), sched_setaffinity(2)):
//
//   inputs and outputs of ranks    over all nodes: every rank's threads read and write all of them
//   what bytes arrive in           on the node of the network card
//   a rank's thread                on one node, with all of its CPUs: ranks are dealt out in order
//   who speaks with other hosts    on the card's node
//
// All of it makes things faster at most: what a machine forbids or does not tell is left out
// without a word, and with one node nothing is done. Whoever has fewer CPUs than the machine (a
// container, taskset) keeps to them.
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
// Those with memory and CPUs, by number; `sysfs`: "/sys". None where it does not tell.
std::vector<NumaNode> numa_nodes(io::Disk& disk, const std::string& sysfs);

// What goes to other hosts.
struct Nic {
  std::string rdma_device = {};  // "mlx5_0"; empty: none
  std::string address = {};  // of this host, in numbers: its interface, where there is no device
};
// The node it hangs on; nothing where that is not known.
std::optional<uint32_t> node_of_nic(io::Disk& disk, const std::string& sysfs, const Nic& nic);

// The interface of this host with that address, "eth0"; empty: none.
std::string interface_of(const std::string& address);

// For pages of `memory` (whole pages of shared memory, for all who have it) that nobody has touched
// yet: from these nodes in turn, or from that one while it has any. Errors: mbind's.
Result<void> interleave(ByteSpan memory, const std::vector<NumaNode>& nodes);
Result<void> prefer(ByteSpan memory, uint32_t node);
// The calling thread runs on those of the CPUs that it may run on now; if there are none, where it
// did. Errors: sched_setaffinity's.
Result<void> run_on(const std::vector<unsigned>& cpus);

// The same by role.
class Placement {
 public:
  Placement() = default;  // nothing is done
  // `pins`: threads as well as memory.
  Placement(std::vector<NumaNode> nodes, bool pins);

  void spread(ByteSpan memory) const;
  void near_nic(ByteSpan memory, std::optional<uint32_t> nic_node) const;
  // The calling thread.
  void pin_rank(uint32_t local_rank, uint32_t local_ranks) const;
  void pin_near_nic(std::optional<uint32_t> nic_node) const;

 private:
  std::vector<NumaNode> nodes_;  // none, or several
  bool pins_ = false;
};

}  // namespace ff::collective

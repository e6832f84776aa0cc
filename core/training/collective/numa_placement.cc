// numa_placement.cc: sysfs and system calls, without libnuma.
#include "training/collective/numa_placement.h"

#include <ifaddrs.h>
#include <linux/mempolicy.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/text.h"
#include "platform/io/files.h"
#include "platform/net/resolve.h"

namespace ff::collective {

namespace {

constexpr uint64_t kFileMax = 64 * kKiB;  // of sysfs
constexpr uint32_t kNodesMax = 1024;      // Linux has no more
constexpr size_t kWordBits = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kNodesMax / kWordBits>;
using CpuMask = std::array<cpu_set_t, 8>;  // 8192 CPUs, the limit of Linux

// The first line of a file; empty: it cannot be read.
std::string line_of(io::Disk& disk, const std::string& path) {
  auto text = io::read_file(disk, path, kFileMax);
  if (!text) return {};
  return text->substr(0, text->find('\n'));
}

Result<void> set_policy(ByteSpan memory, int mode, const NodeMask& nodes) {
  if (memory.empty()) return {};
  // The kernel uses one bit less than `maxnode`.
  const long done =
      ::syscall(SYS_mbind, memory.data(), memory.size(), mode, nodes.data(), kNodesMax + 1, 0);
  if (done != 0) return errno_error(errno, "mbind");
  return {};
}

void add(NodeMask& nodes, uint32_t node) {
  if (node < kNodesMax) nodes[node / kWordBits] |= 1ul << (node % kWordBits);
}

}  // namespace

std::vector<NumaNode> numa_nodes(io::Disk& disk, const std::string& sysfs) {
  const std::string all = sysfs + "/devices/system/node";
  std::vector<NumaNode> nodes;
  for (const unsigned number : parse_cpu_list(line_of(disk, all + "/has_memory"))) {
    auto cpus = parse_cpu_list(line_of(disk, fmt::format("{}/node{}/cpulist", all, number)));
    if (!cpus.empty()) nodes.push_back({.number = number, .cpus = std::move(cpus)});
  }
  return nodes;
}

std::optional<uint32_t> numa_node_of(io::Disk& disk, const std::string& sysfs, const Nic& nic) {
  const std::string name = nic.rdma_device.empty() ? interface_of(nic.address) : nic.rdma_device;
  if (name.empty()) return std::nullopt;
  const char* const kind = nic.rdma_device.empty() ? "net" : "infiniband";
  // -1 when the firmware does not tell.
  const auto node =
      parse_u64(line_of(disk, fmt::format("{}/class/{}/{}/device/numa_node", sysfs, kind, name)));
  if (!node || *node >= kNodesMax) return std::nullopt;
  return static_cast<uint32_t>(*node);
}

std::string interface_of(const std::string& address) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  std::string name;
  for (const ifaddrs* one = first; one != nullptr && name.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    net::SocketAddress socket;
    socket.size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&socket.storage, one->ifa_addr, socket.size);
    if (net::to_address(socket).host == address) name = one->ifa_name;
  }
  ::freeifaddrs(first);
  return name;
}

Result<void> interleave(ByteSpan memory, const std::vector<NumaNode>& nodes) {
  NodeMask mask = {};
  for (const NumaNode& node : nodes) add(mask, node.number);
  return set_policy(memory, MPOL_INTERLEAVE, mask);
}

Result<void> prefer_node(ByteSpan memory, uint32_t node) {
  NodeMask mask = {};
  add(mask, node);
  return set_policy(memory, MPOL_PREFERRED, mask);
}

Result<void> pin_to_cpus(const std::vector<unsigned>& cpus) {
  CpuMask allowed = {}, wanted = {};
  if (::sched_getaffinity(0, sizeof allowed, allowed.data()) != 0) {
    return errno_error(errno, "sched_getaffinity");
  }
  for (const unsigned cpu : cpus) {
    if (CPU_ISSET_S(cpu, sizeof allowed, allowed.data())) {
      CPU_SET_S(cpu, sizeof wanted, wanted.data());
    }
  }
  if (CPU_COUNT_S(sizeof wanted, wanted.data()) == 0) return {};
  if (::sched_setaffinity(0, sizeof wanted, wanted.data()) != 0) {
    return errno_error(errno, "sched_setaffinity");
  }
  return {};
}

NumaPlacement::NumaPlacement(std::vector<NumaNode> nodes, bool pin_threads)
    : pin_threads_(pin_threads) {
  if (nodes.size() > 1) nodes_ = std::move(nodes);
}

void NumaPlacement::interleave_all(ByteSpan memory) const {
  if (!nodes_.empty()) (void)interleave(memory, nodes_);
}

void NumaPlacement::bind_near_nic(ByteSpan memory, std::optional<uint32_t> nic_node) const {
  if (!nodes_.empty() && nic_node) (void)prefer_node(memory, *nic_node);
}

void NumaPlacement::pin_rank(uint32_t local_rank, uint32_t local_ranks) const {
  if (nodes_.empty() || !pin_threads_) return;
  (void)pin_to_cpus(nodes_[local_rank * nodes_.size() / local_ranks].cpus);
}

void NumaPlacement::pin_near_nic(std::optional<uint32_t> nic_node) const {
  if (!pin_threads_ || !nic_node) return;
  for (const NumaNode& node : nodes_) {
    if (node.number == *nic_node) (void)pin_to_cpus(node.cpus);
  }
}

}  // namespace ff::collective

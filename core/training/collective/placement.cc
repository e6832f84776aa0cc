// placement.cc: sysfs, and the system calls of placement.h; libnuma would be one more library.
#include "training/collective/placement.h"

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
constexpr uint32_t kNodesMax = 1024;      // that Linux can have
constexpr size_t kWordBits = 8 * sizeof(unsigned long);
using NodeMask = std::array<unsigned long, kNodesMax / kWordBits>;
using CpuMask = std::array<cpu_set_t, 8>;  // of 8192 CPUs, which is as many as Linux can have

// A line of sysfs; empty: there is none.
std::string line_of(io::Disk& disk, const std::string& path) {
  auto text = io::read_file(disk, path, kFileMax);
  if (!text) return {};
  return text->substr(0, text->find('\n'));
}

Result<void> set_policy(ByteSpan memory, int mode, const NodeMask& nodes) {
  if (memory.empty()) return {};
  // The kernel takes one bit less than it is told of.
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
  for (const unsigned number : parse_list(line_of(disk, all + "/has_memory"))) {
    auto cpus = parse_list(line_of(disk, fmt::format("{}/node{}/cpulist", all, number)));
    if (!cpus.empty()) nodes.push_back({.number = number, .cpus = std::move(cpus)});
  }
  return nodes;
}

std::optional<uint32_t> node_of_nic(io::Disk& disk, const std::string& sysfs, const Nic& nic) {
  const std::string name = nic.rdma_device.empty() ? interface_of(nic.address) : nic.rdma_device;
  if (name.empty()) return std::nullopt;
  const char* const kind = nic.rdma_device.empty() ? "net" : "infiniband";
  // -1 where the machine has not said.
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

Result<void> prefer(ByteSpan memory, uint32_t node) {
  NodeMask mask = {};
  add(mask, node);
  return set_policy(memory, MPOL_PREFERRED, mask);
}

Result<void> run_on(const std::vector<unsigned>& cpus) {
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

Placement::Placement(std::vector<NumaNode> nodes, bool pins) : pins_(pins) {
  if (nodes.size() > 1) nodes_ = std::move(nodes);
}

void Placement::spread(ByteSpan memory) const {
  if (!nodes_.empty()) (void)interleave(memory, nodes_);
}

void Placement::near_nic(ByteSpan memory, std::optional<uint32_t> nic_node) const {
  if (!nodes_.empty() && nic_node) (void)prefer(memory, *nic_node);
}

void Placement::pin_rank(uint32_t local_rank, uint32_t local_ranks) const {
  if (nodes_.empty() || !pins_) return;
  (void)run_on(nodes_[local_rank * nodes_.size() / local_ranks].cpus);
}

void Placement::pin_near_nic(std::optional<uint32_t> nic_node) const {
  if (!pins_ || !nic_node) return;
  for (const NumaNode& node : nodes_) {
    if (node.number == *nic_node) (void)run_on(node.cpus);
  }
}

}  // namespace ff::collective

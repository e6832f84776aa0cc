// Network ports in sysfs: InfiniBand and RoCE (sysfs-class-infiniband), Ethernet (sysfs-class-net),
// bonds (/proc/net/bonding). Error counters are compared with the last run, so that links which
// went down and came back between runs are found (Fire-Flyer paper, VII-C2: flash cuts).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/validate/check.h"

namespace ff::validate {

struct IbPort {
  std::string name;             // "mlx5_0/1"
  std::string state = {};       // "ACTIVE", "INIT", "DOWN"
  std::string physical = {};    // "LinkUp", "Polling", "Disabled"
  std::string link_layer = {};  // "InfiniBand", "Ethernet"
  double rate_gbit = 0;
  std::string rate = {};  // "200 Gb/sec (4X HDR)"
  bool is_active() const;
  bool has_link() const;  // a cable and a peer, whatever the state
  int gids = 0;           // number of GIDs that are set
  // Present counters that only grow on errors: "link_downed" -> 3.
  std::vector<std::pair<std::string, uint64_t>> errors = {};
};
std::vector<IbPort> ib_ports(const SystemTree& tree);

struct NetPort {
  std::string name;    // "eth0"
  bool is_up = false;  // administratively up
  std::optional<bool> has_carrier = {};
  double mtu = 0;           // bytes
  double speed_mbit = 0;    // 0: unknown
  std::string duplex = {};  // "full", "half", ""
  std::optional<uint64_t> carrier_changes = {};
  std::optional<uint64_t> errors = {};  // both directions, with CRC errors
};
// Hardware ports: not loopback, bridges, tunnels or veth pairs.
std::vector<NetPort> net_ports(const SystemTree& tree);
std::vector<std::string> bonds(const SystemTree& tree);
size_t ports_of_bond(const SystemTree& tree, const std::string& bond);

void check_network_ib(const CheckContext& context);
void check_network_ethernet(const CheckContext& context);
void check_network_bond(const CheckContext& context);

}  // namespace ff::validate

// Network ports as sysfs shows them: InfiniBand and RoCE (sysfs-class-infiniband), Ethernet
// (sysfs-class-net), bonds (/proc/net/bonding). What counts errors is held against the last run, so
// that links that went down and came back between runs are seen (paper, section VII-C2: flash
// cuts).
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
  int gids = 0;  // that are set
  // Those that only grow when something is wrong, and are there: "link_downed" -> 3.
  std::vector<std::pair<std::string, uint64_t>> errors = {};
};
std::vector<IbPort> ib_ports(const Tree& tree);

struct NetPort {
  std::string name;    // "eth0"
  bool is_up = false;  // an administrator wants it up
  std::optional<bool> has_carrier = {};
  double mtu = 0;           // bytes
  double speed_mbit = 0;    // 0: unknown
  std::string duplex = {};  // "full", "half", ""
  std::optional<uint64_t> carrier_changes = {};
  std::optional<uint64_t> errors = {};  // both ways, with CRC errors
};
// Those of hardware: not loopback, bridges, tunnels, containers' pairs.
std::vector<NetPort> net_ports(const Tree& tree);
std::vector<std::string> bonds(const Tree& tree);
size_t ports_of_bond(const Tree& tree, const std::string& bond);

void check_network_ib(const Context& context);
void check_network_ethernet(const Context& context);
void check_network_bond(const Context& context);

}  // namespace ff::validate

// The world of a job: all its nodes, each a host with ranks that follow one another, and their
// encoding for messages between nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::collective {

// Also limits the nodes, each of which has a connection to every other.
constexpr uint32_t kWorldRanksMax = 4096;
constexpr size_t kZoneNameMax = 64;  // bytes

struct WorldNode {
  uint32_t first_rank = 0;
  std::vector<int32_t> pids = {};  // of its ranks
  std::string zone = {};           // its name
  std::string host = {};
  // Where other nodes connect to it; of the node of rank 0: its host is that of the rendezvous.
  net::Address address = {};

  uint32_t ranks() const { return static_cast<uint32_t>(pids.size()); }
};

struct World {
  std::vector<WorldNode> nodes;  // by first rank

  uint32_t ranks() const;
  // The index of the node of a rank.
  uint32_t node_of(uint32_t rank) const;
  // "rank 3 (process 4711 on node7)".
  std::string name_of(uint32_t rank) const;
  // The zone of each node, numbered from 0 in the order of their first nodes.
  std::vector<uint32_t> zones() const;
  // Tells the worlds of two communicators apart that live at the same time.
  uint64_t mark() const;
};

std::string encode_node(const WorldNode& node);
Result<WorldNode> parse_node(ByteView bytes);
std::string encode_world(const World& world);
Result<World> parse_world(ByteView bytes);

}  // namespace ff::collective

// Who takes part in a job: its nodes, each a host with ranks that follow one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"
#include "platform/net/address.h"

namespace ff::collective {

// The most ranks of a job, and so of nodes: each node has a connection to every other.
constexpr uint32_t kWorldRanksMax = 4096;

struct Node {
  uint32_t first_rank = 0;
  std::vector<int32_t> processes = {};  // of its ranks
  uint32_t zone = 0;                    // any number; World::zones() counts them
  std::string host = {};
  net::Address listens = {};  // where other nodes reach it

  uint32_t ranks() const { return static_cast<uint32_t>(processes.size()); }
};

struct World {
  std::vector<Node> nodes;  // by their first rank; those of a zone follow one another

  uint32_t ranks() const;
  // Of a rank of the job.
  uint32_t node_of(uint32_t rank) const;
  // "rank 3 (process 4711 on node7)".
  std::string name_of(uint32_t rank) const;
  // Of each node, counted from 0 in order.
  std::vector<uint32_t> zones() const;
};

// As one node tells another.
std::string encode_node(const Node& node);
Result<Node> parse_node(ByteView bytes);
std::string encode_world(const World& world);
Result<World> parse_world(ByteView bytes);

}  // namespace ff::collective

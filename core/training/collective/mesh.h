// The nodes of a job (one for each host) and this node's connections to the others: a full mesh,
// which rendezvous.h makes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "platform/net/connection.h"
#include "platform/net/transport.h"
#include "training/collective/world.h"

namespace ff::collective {

struct Mesh {
  World world = {};
  uint32_t self = 0;                                               // this node in `world`
  std::vector<std::unique_ptr<net::Connection>> connections = {};  // by node; null for this one
  // At the address of this node in `world`, for successors of other leaders (successor.h); null if
  // each node has one rank.
  std::unique_ptr<net::Listener> listener = {};
};

}  // namespace ff::collective

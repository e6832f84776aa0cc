// A network in memory, driven by a seed. Addresses are "NODE:PORT". Connections behave as over TCP:
// bytes arrive in order, in pieces of any size, after a delay.
//
// Faults that users must tolerate:
// - Links have a delay with jitter and a bandwidth. A partition blocks a link: bytes wait, nothing
//   fails. One-way partitions block one direction.
// - break_connections(): both ends fail; any part of the bytes in flight is delivered. Not between
//   nodes that share memory: no network is between them, and the end that closes first says when.
// - stop_process(): peers see a reset; part of what the process sent may still arrive.
//   stop_machine(): peers see nothing until the machine is back, then a reset.
// - share_memory(): a peer on the same machine accesses memory of a process directly (net/shm.h),
//   independent of the link, until it learns that the connection has ended.
// - connect() takes a round trip, waits while the link is blocked, and fails if nobody listens.
//
// Guarantee: bytes of one connection are not changed, duplicated or reordered.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/net/transport.h"
#include "platform/sim/sim_world.h"

namespace ff::sim {

struct SimLink {
  int64_t delay_min_ns = 20 * kMicrosecond;
  int64_t delay_max_ns = 200 * kMicrosecond;
  uint64_t bytes_per_second = 1'000'000'000;
};

class SimListener;
class SimPipe;

class SimNet {
 public:
  SimNet(SimWorld& world, uint64_t seed);
  ~SimNet();

  // The transport of one node, which its servers know as `self`; empty: it has no key. Nothing is
  // proven here: net/tls.h does that. Must not outlive the net.
  std::unique_ptr<net::Transport> transport(std::string node, std::optional<auth::Entity> self);
  // A node that may call every method.
  std::unique_ptr<net::Transport> transport(std::string node);

  // Zeroed memory of `node`, aligned for direct I/O, that `peer` can access over connections made
  // from now on. Once per pair of nodes. Owned by the net.
  ByteSpan share_memory(const std::string& node, const std::string& peer, size_t bytes);

  void set_default_link(SimLink link) { default_link_ = link; }
  void set_link(const std::string& from, const std::string& to, SimLink link);
  // Resets all links to the default.
  void reset_links() { links_.clear(); }
  // Blocks this direction until unblock().
  void block(const std::string& from, const std::string& to);
  void unblock(const std::string& from, const std::string& to);
  // Fails each open connection with this probability, except between nodes that share memory.
  void break_connections(double probability);
  // The process ends. Call it before its objects are destroyed.
  void stop_process(const std::string& node);
  // The machine loses power, and comes back.
  void stop_machine(const std::string& node);
  void start_machine(const std::string& node);

  // Number of delivered bytes, and a hash of all deliveries and their times: equal for equal runs.
  uint64_t delivered() const { return delivered_; }
  uint64_t trace() const { return trace_; }

 private:
  friend class SimTransport;
  friend class SimListener;
  friend class SimStream;
  friend class SimPipe;
  using Direction = std::pair<std::string, std::string>;

  const SimLink& link(const Direction& direction) const;
  bool blocked(const Direction& direction) const;
  // Memory that the first node of the direction shares with the second.
  ByteSpan memory(const Direction& direction);
  void note(uint64_t pipe, std::string_view bytes);
  void wake_pipes();

  SimWorld& world_;
  SeededRng rng_;
  SimLink default_link_;
  std::map<Direction, SimLink> links_;
  std::set<Direction> blocked_;
  struct Shared {
    std::vector<std::byte> storage;
    ByteSpan aligned;
  };
  std::map<Direction, Shared> memory_;             // of the first node, for the second
  std::set<std::string> down_;                     // machines
  std::map<std::string, SimListener*> listeners_;  // by address
  std::map<uint64_t, std::weak_ptr<SimPipe>> pipes_;
  uint64_t next_pipe_ = 1;
  uint16_t next_port_ = 50000;
  uint64_t delivered_ = 0;
  uint64_t trace_ = 0;
};

}  // namespace ff::sim

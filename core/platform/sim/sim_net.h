// A network in memory, from a seed. Addresses are "NODE:PORT"; every byte of a connection passes
// through here as it would through TCP: in order, in pieces of any size, after a delay.
//
// What it does to its users, and they must survive:
// - a link delays (jitter included), has a bandwidth, and is blocked for as long as a partition
//   lasts: bytes wait, nothing fails. One-way partitions block one direction.
// - break_connections(): both ends fail, with any part of what was on its way delivered or not.
// - stop_process(): its connections are reset for their peers; what it sent may still arrive, in
//   part. stop_machine(): silence instead, until the machine is back: then a reset.
// - share_memory(): a peer on the same machine reaches memory of a process itself (net/shm.h), at
//   once and whatever befalls the link, until it hears that the connection is gone.
// - connecting takes a round trip, waits for as long as the link is blocked, and fails where nobody
//   listens.
//
// What it never does: bytes of one connection do not change, double or overtake each other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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

  // The network as one node sees it. Must not outlive the net.
  std::unique_ptr<net::Transport> transport(std::string node);

  // Memory of `node`, zeros at first and aligned for direct I/O, that `peer` reaches over
  // connections made from now on. Once for the two. Lives as long as the net.
  ByteSpan share_memory(const std::string& node, const std::string& peer, size_t bytes);

  void set_default_link(SimLink link) { default_link_ = link; }
  void set_link(const std::string& from, const std::string& to, SimLink link);
  // All links are as by default again.
  void forget_links() { links_.clear(); }
  // Nothing passes in this direction until unblock().
  void block(const std::string& from, const std::string& to);
  void unblock(const std::string& from, const std::string& to);
  // Fails each open connection with this probability.
  void break_connections(double probability);
  // The process has ended: before its objects are destroyed.
  void stop_process(const std::string& node);
  // The machine is gone, and back.
  void stop_machine(const std::string& node);
  void start_machine(const std::string& node);

  // Bytes delivered, and a hash over what was delivered when: equal for equal runs.
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
  // What the first of the direction has for the second.
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
  std::map<Direction, Shared> memory_;             // of the first, for the second
  std::set<std::string> down_;                     // machines
  std::map<std::string, SimListener*> listeners_;  // by address
  std::map<uint64_t, std::weak_ptr<SimPipe>> pipes_;
  uint64_t next_pipe_ = 1;
  uint16_t next_port_ = 50000;
  uint64_t delivered_ = 0;
  uint64_t trace_ = 0;
};

}  // namespace ff::sim

// Rendezvous: how the nodes of a job find each other. Every node connects to the node of rank 0 and
// describes itself (peer_handshake.h). Once all ranks have joined, rank 0 sends the table of all
// nodes (world.h); then each pair of nodes makes a connection, rank 0 stops listening at the
// address of the rendezvous and lets all of them start. Each node goes on listening at the address
// that the table has of it, where successors connect (successor.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/net/transport.h"
#include "training/collective/mesh.h"
#include "training/collective/peer_handshake.h"

namespace ff::collective {

struct RendezvousOptions {
  net::Address at;  // where the node of rank 0 listens
  JobTerms terms = {};
};

class Rendezvous {
 public:
  // Waits until all nodes are connected. Errc::refused: no key and an address that other machines
  // reach, or a peer with another key; Errc::usage: ranks that do not fit together;
  // Errc::unreachable; Errc::deadline when a deadline cancels this, on all nodes that have
  // joined: names the missing ranks.
  static Task<Result<Mesh>> join(Loop& loop, net::Transport& transport, RendezvousOptions options,
                                 WorldNode self);

 private:
  Rendezvous(Loop& loop, net::Transport& transport, RendezvousOptions options, WorldNode self);

  Task<Result<Mesh>> run();
  Task<Result<void>> listen();
  Task<void> accept();
  Task<void> handle_connection(std::unique_ptr<net::IncomingConnection> incoming);
  Result<void> admit(const WorldNode& node);
  template <class Condition>
  Task<Result<void>> wait_until(Condition condition);

  // The node of rank 0.
  Task<Result<void>> lead();
  Task<void> announce(const Result<void>& outcome);
  void update_missing();
  Error timeout_error() const;
  void make_world();
  Task<Result<void>> receive_all_connected();
  // The other nodes.
  Task<Result<void>> follow();
  Task<Result<void>> connect_to_leader();
  Task<Result<void>> connect_to_others();
  Task<void> receive_start();

  Loop& loop_;
  net::Transport& transport_;
  const RendezvousOptions options_;
  WorldNode self_;
  std::string missing_;  // rank 0: ranks, "1 to 3, 5"; other ranks: why they cannot reach rank 0
  uint32_t index_ = 0;   // of this node in world_
  World world_;
  std::map<uint32_t, WorldNode> joined_;  // at the node of rank 0: the others, by first rank
  std::map<uint32_t, std::unique_ptr<net::Connection>> connections_;  // by first rank
  std::unique_ptr<net::Connection> leader_;  // to the node of rank 0, until all may start
  bool may_start_ = false;
  std::optional<Error> problem_;
  uint32_t ranks_told_ = 0;  // that have received the problem
  Event changed_;
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Listener> successors_;  // at the node of rank 0
  Gate gate_;
  Gate accepting_;  // new connections
};

}  // namespace ff::collective

// How the nodes of a job meet: one rank of each, which speaks for it, connects to the node of rank
// 0, which tells all of them of all; then each pair of nodes makes a connection. Both ends of
// every connection prove that they hold the job's key, without showing it:
//
//   one that comes                                 one that listens
//   nonce                                      ->
//                                              <-  nonce  proof
//   proof  what it says of itself (world.h)    ->
//                                              <-  at rank 0: the table of all, or why not
//   it has connections to all (to rank 0)      ->
//                                              <-  all have, or what is wrong
//
//   proof = HMAC-SHA256(key, "ff reduce server|" or "ff reduce client|", both nonces)
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/auth/key.h"
#include "platform/base/gate.h"
#include "platform/base/rng.h"
#include "platform/net/transport.h"
#include "training/collective/world.h"

namespace ff::collective {

struct Meeting {
  net::Address at;                    // where the node of rank 0 listens
  std::optional<auth::Key> key = {};  // of the job; without one all must be on this machine
  uint32_t ranks = 0;                 // of the job
  std::string settings = {};          // that all nodes must have alike, in words
};

class Mesh {
 public:
  // A node of `world`, and the connections to the others; null for itself.
  World world;
  uint32_t self = 0;
  std::vector<std::unique_ptr<net::Connection>> connections;

  // Waits until all have met. Errc::refused: no key for an address of another machine, or another
  // key; Errc::usage: ranks that do not fit together; Errc::unreachable; with what ranks are
  // missing where a deadline cancels it is told by `missing`.
  static Task<Result<Mesh>> join(Loop& loop, net::Transport& transport, Meeting meeting, Node self,
                                 std::string& missing);
};

}  // namespace ff::collective

// The handshake: both ends prove that they hold the cluster key before any call, without showing
// it (wire.md, "Who may talk").
//
//   client                                server
//   ClientHello  version nonce key_id  ->
//                                     <-  ServerHello  version nonce proof
//   ClientProof  proof                ->
//                                     <-  Welcome
//
//   proof = HMAC-SHA256(key, "ff server|" or "ff client|", client's version:u32 server's
//   version:u32 client's nonce server's nonce), so that a proof serves one side of one connection.
//   Without a key on both sides proofs are empty; a key on one side only is refused.
//
// A client with a token says in its hello whose it is, and the key of both proofs is that user's
// (auth/token.h), which the server derives from the cluster key. So the server proves itself to
// users, too, and takes from the handshake alone who calls.
//
// Instead of any answer a Refusal says why. An attacker between two hosts can still read and change
// what follows: for networks that are not trusted there is TLS (net/tls.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/auth/key.h"
#include "platform/auth/token.h"
#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/net/connection.h"

namespace ff::rpc {

// For the whole handshake.
constexpr int64_t kHandshakeNs = 10 * kSecond;

struct Identity {
  std::string name;      // of this end, for messages: "storage 3 on node7"
  std::string software;  // "ff 0.1.0"
  std::optional<auth::Key> key;
  Rng* nonces = nullptr;  // SecureRng; seeded in simulation
  uint32_t version = net::kWireVersion;
  std::optional<auth::User> user = {};  // client: it holds a token, whose key `key` is
};

// Which client connects, and for which time. Its newer connection ends its older ones on the server
// before it is served: no call of theirs is done any more once a call of the newer one has begun.
struct Caller {
  std::string id = {};  // 16 random bytes; empty: nothing is ended
  uint64_t connection = 0;
};

std::string caller_id(Rng& rng);

struct Peer {
  std::string name;        // as it calls itself; escaped for printing
  std::string software;    // the same
  std::string address;     // net::Connection::peer()
  bool has_key = false;    // it proved to hold the cluster key; to a user, the user's
  uint32_t calls_max = 0;  // client: in flight
  Caller caller = {};      // server: whose connection it is
  // Server: it proved to hold this user's token.
  std::optional<auth::User> user = {};
  bool keyless = false;  // neither end has a key: both are on one machine

  // Server: it may act for any user.
  bool trusted() const { return !user && (has_key || keyless); }

  // "storage 3 on node7 at 10.0.0.7:4000 (tcp)".
  std::string text() const;
};

// Errc::refused: key or version do not fit, with a message that names both sides; Errc::corrupt:
// the peer does not keep to this; Errc::deadline, Errc::unreachable.
Task<Result<Peer>> client_handshake(net::Connection& connection, Identity self, Caller caller = {});
Task<Result<Peer>> server_handshake(net::Connection& connection, Identity self, uint32_t calls_max);

}  // namespace ff::rpc

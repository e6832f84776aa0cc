// The handshake: before any call both ends prove with a challenge and response that they hold the
// cluster key.
//
//   client                                server
//   ClientHello  version nonce key_id  ->
//                                     <-  ServerHello  version nonce proof
//   ClientProof  proof                ->
//                                     <-  Welcome
//
//   proof = HMAC-SHA256(key, "ff server|" or "ff client|", client's version:u32 server's
//   version:u32 client's nonce server's nonce), so that a proof is valid for one side of one
//   connection only. If neither side has a key, proofs are empty; a key on one side only is
//   refused.
//
// A client with a token names its user in the hello. The key of both proofs is then the user's key
// (auth/token.h), which the server derives from the cluster key. So the server proves itself to
// users too, and the handshake alone identifies the caller.
//
// Either end may send a Refusal with the reason instead of its next step. An attacker between the
// hosts can read and change later frames: use TLS (net/tls.h) on untrusted networks.
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

// Time limit of the whole handshake.
constexpr int64_t kHandshakeNs = 10 * kSecond;

struct Identity {
  std::string name;      // this end's name in messages: "storage 3 on node7"
  std::string software;  // "ff 0.1.0"
  std::optional<auth::Key> key;
  Rng* nonces = nullptr;  // SecureRng; seeded in simulation
  uint32_t version = net::kProtocolVersion;
  std::optional<auth::TokenId> user = {};  // client with a token; `key` is the token's key
};

// Identifies a client and counts its connections. Before the server serves a connection it closes
// the older ones of the same client and waits for their calls to end, so that a delayed call of an
// old connection never executes after a call of a newer one.
struct ClientInstance {
  std::string id = {};  // 16 random bytes; empty: no older connections to close
  uint64_t connection = 0;
};

std::string new_client_id(Rng& rng);

struct Peer {
  std::string name;            // the peer's own name, escaped for printing
  std::string software;        // the same
  std::string address;         // net::Connection::peer()
  bool has_key = false;        // the peer proved the cluster key (to a user: the user's key)
  uint32_t calls_max = 0;      // client: limit of calls in flight
  ClientInstance client = {};  // server: whose connection it is
  // Server: the user whose token the peer proved.
  std::optional<auth::TokenId> user = {};
  bool keyless = false;  // neither end has a key: both are on the same machine

  // Server: the peer may act for any user.
  bool trusted() const { return !user && (has_key || keyless); }

  // "storage 3 on node7 at 10.0.0.7:4000 (tcp)".
  std::string text() const;
};

// Errc::refused: keys or versions do not match; the message names both sides. Errc::corrupt: the
// peer violated the protocol. Errc::deadline, Errc::unreachable.
Task<Result<Peer>> client_handshake(net::Connection& connection, Identity self,
                                    ClientInstance instance);
// A client that ends no older connections of its own.
inline Task<Result<Peer>> client_handshake(net::Connection& connection, Identity self) {
  return client_handshake(connection, std::move(self), ClientInstance{});
}
Task<Result<Peer>> server_handshake(net::Connection& connection, Identity self, uint32_t calls_max);

}  // namespace ff::rpc

// The handshake: before any call both ends say their version and their name. Who the peer is, the
// transport has proven before (net/secure_stream.h).
//
//   client                                       server
//   ClientHello  version name instance        ->
//                                             <-  ServerHello  version name calls_max
//
// The server may send a Refusal with the reason instead.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "platform/auth/key.h"
#include "platform/auth/keyring.h"
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
  uint32_t version = net::kProtocolVersion;
};

// Identifies a client and counts its connections. Before the server serves a connection it closes
// the older ones of the same client and waits for their calls to end, so that a delayed call of an
// old connection never executes after a call of a newer one.
struct ClientInstance {
  std::string id = {};  // 16 random bytes; empty: no older connections to close
  uint64_t connection = 0;
  bool any_shard = false;  // the server may choose the shard that serves the client
};

// The shard of a daemon that is to serve a client.
struct ShardChoice {
  uint32_t count = 0;  // of the shards; 0: the server chooses none
  uint32_t shard = 0;
};

std::string new_client_id(Rng& rng);

struct Peer {
  std::string name;            // the peer's own name, escaped for printing
  std::string software;        // the same
  std::string address;         // net::Connection::peer()
  bool has_key = false;        // both ends proved a key; else both are on the same machine
  uint32_t calls_max = 0;      // client: limit of calls in flight
  ShardChoice choice = {};     // client: what the server has chosen for it
  ClientInstance client = {};  // server: whose connection it is
  // Server: the client that proved its key.
  std::optional<auth::Entity> entity = {};

  // Server: the user whose key the client proved; empty: it is no user.
  std::optional<auth::TokenId> user() const;
  // Server: the peer may act for any user, on all files.
  bool trusted() const { return !has_key || (entity && !entity->restricted()); }

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
// What a server tells its clients.
struct ServerTerms {
  uint32_t calls_max = 0;
  // Null without keys. The client is told why its key is not valid.
  const auth::Keyring* keyring = nullptr;
  // For a client that any shard may serve; null: this one does.
  std::function<ShardChoice()> choose_shard = {};
};
Task<Result<Peer>> server_handshake(net::Connection& connection, Identity self, ServerTerms terms);

}  // namespace ff::rpc

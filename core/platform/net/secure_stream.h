// The first step on a new connection: both ends prove that they hold a key, over a stream that
// nobody else can read, change or relay.
//
//   keys alone              TLS 1.3 with the client's key for the service (tls.h)
//   keys and certificates   TLS 1.3 with certificates; in it the client sends
//                             size:u16 identity proof:32      proof = HMAC-SHA256(key, "ff client|"
//                             secret)
//                           and the server answers
//                             proof:32                        proof = HMAC-SHA256(key, "ff server|"
//                             secret)
//                           where key is the client's for the service, and secret one of this TLS
//                           connection only (RFC 8446, 7.5)
//   neither                 nothing: both ends trust every process of this machine
#pragma once

#include <memory>
#include <optional>

#include "platform/auth/keyring.h"
#include "platform/base/task.h"
#include "platform/net/connection.h"
#include "platform/net/socket.h"
#include "platform/net/stream.h"
#include "platform/net/tls.h"

namespace ff::net {

struct StreamCredentials {
  std::shared_ptr<const auth::Keyring> keyring = nullptr;    // null: no key
  std::shared_ptr<const TlsContext> keys = nullptr;          // of the keyring
  std::shared_ptr<const TlsContext> certificates = nullptr;  // only besides a keyring
};

struct SecureStream {
  std::unique_ptr<Stream> stream;
  PeerProof proof = {};
  // With keys: known to the two ends of this connection only.
  std::optional<auth::Key> secret = {};

  // With keys: the same connection without TLS (TlsStream::release_socket()).
  std::unique_ptr<Stream> take_plain();
};

// Errc::refused: an end does not accept the other's key or certificate. Without a time limit.
Task<Result<SecureStream>> connect_secure_stream(std::unique_ptr<SocketStream> socket,
                                                 StreamCredentials credentials, TlsServer expected);
Task<Result<SecureStream>> accept_secure_stream(std::unique_ptr<SocketStream> socket,
                                                StreamCredentials credentials);

// Both ends prove on another stream that they know the secret. Errc::refused: the peer does not.
Task<Result<void>> prove_secret(Stream& stream, auth::Key secret, bool as_client);

}  // namespace ff::net

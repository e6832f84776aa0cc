// secure_stream.cc: TLS, and proofs of keys inside it.
#include "platform/net/secure_stream.h"

#include <array>
#include <string>

#include "platform/base/bytes.h"
#include "platform/net/preface.h"

namespace ff::net {

namespace {

constexpr std::byte kTlsHandshake{0x16};  // the type of a client's first record: RFC 8446, 5.1
constexpr std::string_view kProofLabel = "EXPORTER-ff-proof";
constexpr std::string_view kSecretLabel = "EXPORTER-ff-secret";

// A client's first record: type:u8 version:u16 size:u16 (RFC 8446, 5.1).
constexpr size_t kRecordHeaderBytes = 5;
// Of the first record; a client that proves a key needs less than half.
constexpr size_t kHelloMax = 4 * kKiB;

// Until a client has sent its hello, it costs this end no state of TLS.
Task<Result<void>> wait_for_hello(SocketStream& socket) {
  std::array<std::byte, kRecordHeaderBytes> header;
  FF_CO_TRY(co_await socket.peek(header));
  const size_t size = kRecordHeaderBytes + (std::to_integer<size_t>(header[3]) << 8) +
                      std::to_integer<size_t>(header[4]);
  if (size > kHelloMax) {
    co_return fail(Errc::corrupt, "its first message has {} bytes, more than any client's", size);
  }
  co_return co_await socket.wait_for(size);
}

auth::Key proof_of(const auth::Key& key, bool of_client, const auth::Key& secret) {
  std::string said = of_client ? "ff client|" : "ff server|";
  said += as_text(secret);
  return auth::hmac_sha256(key, as_bytes(said));
}

Error wrong_proof() {
  Error error = fail(Errc::refused, "wrong key: the key of the peer is not one of this cluster");
  error.hint = "The key is of another cluster, or the address is: compare both.";
  return error;
}

// The client's side inside TLS with certificates.
Task<Result<void>> prove_entity(TlsStream& stream, auth::Credential credential) {
  const auth::Key secret = stream.export_key(kProofLabel);
  std::string message;
  append_le(message, static_cast<uint16_t>(credential.identity.size()));
  message += credential.identity;
  message += as_text(proof_of(credential.key, true, secret));
  FF_CO_TRY(co_await write_all(stream, as_bytes(message)));
  auth::Key answer;
  FF_CO_TRY(co_await read_all(stream, answer));
  if (!auth::constant_time_equal(answer, proof_of(credential.key, false, secret))) {
    co_return wrong_proof();
  }
  co_return Result<void>();
}

// The server's side: who the client is.
Task<Result<auth::Entity>> verify_entity(TlsStream& stream,
                                         std::shared_ptr<const auth::Keyring> keyring) {
  const auth::Key secret = stream.export_key(kProofLabel);
  std::array<std::byte, sizeof(uint16_t)> size;
  FF_CO_TRY(co_await read_all(stream, size));
  std::string identity(load_le<uint16_t>(size.data()), '\0');
  if (identity.size() > auth::kIdentityMax) {
    co_return fail(Errc::corrupt, "an identity of {} bytes", identity.size());
  }
  FF_CO_TRY(co_await read_all(
      stream, ByteSpan(reinterpret_cast<std::byte*>(identity.data()), identity.size())));
  auth::Key proof;
  FF_CO_TRY(co_await read_all(stream, proof));
  FF_CO_TRY(auth::Entity client, auth::parse_identity(identity));
  FF_CO_TRY(const auth::Key key, keyring->key_of(client));
  if (!auth::constant_time_equal(proof, proof_of(key, true, secret))) {
    co_return fail(Errc::refused, "wrong key: the peer claims to be {}, but its key differs",
                   client.full_name());
  }
  FF_CO_TRY(co_await write_all(stream, proof_of(key, false, secret)));
  co_return client;
}

}  // namespace

std::unique_ptr<Stream> SecureStream::take_plain() {
  FF_CHECK(proof.has_key);
  auto socket = static_cast<TlsStream&>(*stream).release_socket();
  stream.reset();
  return socket;
}

Task<Result<SecureStream>> connect_secure_stream(std::unique_ptr<SocketStream> socket,
                                                 StreamCredentials credentials,
                                                 TlsServer expected) {
  SecureStream secure;
  if (credentials.keyring == nullptr) {
    secure.stream = std::move(socket);
    co_return secure;
  }
  const auth::Service service = expected.service;
  const bool certified = credentials.certificates != nullptr;
  auto connecting =
      TlsStream::connect(std::move(socket), certified ? credentials.certificates : credentials.keys,
                         std::move(expected));
  FF_CO_TRY(auto tls, co_await std::move(connecting));
  if (certified) {
    auto credential = credentials.keyring->credential(service);
    if (!credential) co_return no_key_for(*credentials.keyring, service);
    FF_CO_TRY(co_await prove_entity(*tls, std::move(*credential)));
  }
  secure.proof.has_key = true;
  secure.secret = tls->export_key(kSecretLabel);
  secure.stream = std::move(tls);
  co_return secure;
}

Task<Result<SecureStream>> accept_secure_stream(std::unique_ptr<SocketStream> socket,
                                                StreamCredentials credentials) {
  SecureStream secure;
  if (credentials.keyring == nullptr) {
    secure.stream = std::move(socket);
    co_return secure;
  }
  // A client without a key begins with its offer (preface.h).
  std::array<std::byte, 1> first;
  FF_CO_TRY(co_await socket->peek(first));
  if (first[0] != kTlsHandshake) {
    const TransportChoice choice = {TransportKind::key, 0, {}};
    const auto encoded = encode_choice(choice);
    (void)co_await write_all(*socket, encoded);
    co_return fail(Errc::refused, "connection refused: the peer has no key");
  }
  FF_CO_TRY(co_await wait_for_hello(*socket));
  const bool certified = credentials.certificates != nullptr;
  auto accepting =
      TlsStream::accept(std::move(socket), certified ? credentials.certificates : credentials.keys);
  FF_CO_TRY(auto tls, co_await std::move(accepting));
  secure.proof.client = tls->client();
  if (certified) {
    FF_CO_TRY(secure.proof.client, co_await verify_entity(*tls, credentials.keyring));
  }
  secure.proof.has_key = true;
  secure.secret = tls->export_key(kSecretLabel);
  secure.stream = std::move(tls);
  co_return secure;
}

Task<Result<void>> prove_secret(Stream& stream, auth::Key secret, bool as_client) {
  FF_CO_TRY(co_await write_all(stream, proof_of(secret, as_client, secret)));
  auth::Key answer;
  FF_CO_TRY(co_await read_all(stream, answer));
  if (auth::constant_time_equal(answer, proof_of(secret, !as_client, secret))) {
    co_return Result<void>();
  }
  co_return fail(Errc::refused, "the other end of the Unix socket is not the peer");
}

}  // namespace ff::net

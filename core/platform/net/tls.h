// TLS 1.3 for a connection (connection.h), over a stream socket. A context has one of two kinds of
// credentials:
//
// - Keys: pre-shared keys of entities (auth/keyring.h) with (EC)DHE (RFC 8446, 2.2). The client
//   presents its identity, and the server derives the key from it. Both prove that they know the
//   key; nobody between them can read, change or relay anything.
// - Certificates: both sides present a certificate and verify the other's against the same CA file;
//   the client also checks the host name. The server accepts every peer with a certificate of the
//   CA, and the handshake above (rpc/handshake.h) checks its key.
//
// No session resumption and no early data: connections are few and long-lived.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "platform/auth/keyring.h"
#include "platform/base/task.h"
#include "platform/io/disk.h"
#include "platform/net/socket.h"
#include "platform/net/stream.h"

// As <openssl/ssl.h> has them.
struct bio_method_st;
struct bio_st;
struct ssl_ctx_st;
struct ssl_st;

namespace ff::net {

// PEM files.
struct TlsFiles {
  std::string cert;  // own certificate, followed by the intermediate certificates
  std::string key;   // own private key, not encrypted
  // Trusted CA certificates. Empty: for servers only, which then take clients without certificates;
  // the clients prove who they are in another way.
  std::string ca;
};

// Shared by all TLS connections of a process. Thread-safe.
class TlsContext {
 public:
  // Errors name the file. Errc::refused: a key that others can read (or the group, unless root owns
  // it), or a certificate that is not valid now. Errc::usage: files with other content.
  static Result<std::shared_ptr<const TlsContext>> make(io::Disk& disk, const TlsFiles& files);
  static std::shared_ptr<const TlsContext> make(std::shared_ptr<const auth::Keyring> keyring);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  TlsContext();
  Result<void> load(io::Disk& disk, const TlsFiles& files);

  std::shared_ptr<const auth::Keyring> keyring_;  // null: certificates
  ssl_ctx_st* context_ = nullptr;
  bio_method_st* socket_method_ = nullptr;  // TlsStream::SocketBio
};

// The error of a client without a key for the service.
Error no_key_for(const auth::Keyring& keyring, const auth::Service& service);

// Whom a client expects.
struct TlsServer {
  std::string host = {};       // with certificates: a name or numeric address
  auth::Service service = {};  // with keys
};

class TlsStream final : public Stream {
 public:
  // The handshake, without a time limit. Errc::refused: one side does not accept the other's key or
  // certificate, this end has no key for the service, or the certificate is not valid for the host.
  // Errc::corrupt: the peer does not speak TLS 1.3.
  //
  // With certificates, the client finishes before the server has verified its certificate: a
  // refusal is reported by the client's first read.
  static Task<Result<std::unique_ptr<TlsStream>>> connect(std::unique_ptr<SocketStream> socket,
                                                          std::shared_ptr<const TlsContext> context,
                                                          TlsServer expected);
  static Task<Result<std::unique_ptr<TlsStream>>> accept(std::unique_ptr<SocketStream> socket,
                                                         std::shared_ptr<const TlsContext> context);
  ~TlsStream() override;

  // Errc::unreachable also if the stream ends without close_notify: an attacker may have truncated
  // it.
  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override;
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override;
  Event& readable() override { return socket_->readable(); }
  Event& writable() override { return socket_->writable(); }
  void expect(size_t bytes) override;
  void close() override;
  std::string peer() const override;
  std::string local() const override { return socket_->local(); }
  // Server: the client that has proven its key. Empty with certificates.
  const std::optional<auth::Entity>& client() const { return client_; }
  // The socket below, at a moment at which both ends have read everything that the other has
  // written: what follows goes over it in plain. The stream is of no use afterwards.
  std::unique_ptr<SocketStream> release_socket();
  // The key for writing changes after this many bytes (RFC 8446, 4.6.3 and 5.5). Initially 256 GiB.
  void change_key_after(uint64_t bytes) { key_bytes_ = bytes; }
  uint64_t key_changes() const { return key_changes_; }
  // A key that only the two ends of this connection know (RFC 8446, 7.5); different for each label.
  auth::Key export_key(std::string_view label) const;

  // The callbacks of OpenSSL (tls_bio.h, tls_keys.cc).
  struct KeyCallbacks;
  // The BIO callbacks (tls_bio.h).
  struct SocketBio;

 private:
  enum class Outcome : uint8_t { done, wants_read, ended };

  TlsStream(std::unique_ptr<SocketStream> socket, std::shared_ptr<const TlsContext> context);
  Result<void> start(bool as_client);
  Result<void> expect_host(std::string host);
  Result<void> take_credential();
  Task<Result<void>> shake_hands();
  Task<Result<void>> send_handshake();
  Result<Outcome> outcome(int returned);
  Error failure(int code);
  Error key_failure(int reason, const std::string& text) const;
  Result<size_t> encrypt(std::span<const ByteView> from, size_t skip, size_t bytes);
  Result<size_t> encrypt_record(std::span<const ByteView> from, size_t skip);
  Result<bool> send_encrypted();

  std::unique_ptr<SocketStream> socket_;
  std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_ = nullptr;
  TlsServer expected_;                          // client
  std::optional<auth::Credential> credential_;  // client with keys
  std::optional<auth::Entity> client_;          // server with keys
  std::optional<Error> refusal_;                // server with keys: of the last identity
  std::optional<Error> socket_error_;           // error of the socket, below OpenSSL
  bool socket_ended_ = false;
  std::optional<Error> error_;  // the stream has failed for good
  bool closed_ = false;
  // Records that OpenSSL has written and the socket has not accepted; from encrypted_begin_ on.
  std::string encrypted_;
  size_t encrypted_begin_ = 0;
  // Bytes of the pieces of try_write() in them: reported as accepted when the records are sent, so
  // that the caller waits for the socket.
  size_t unreported_ = 0;
  uint64_t key_bytes_ = 256 * kGiB;
  uint64_t bytes_with_key_ = 0;  // written since the last change of the key
  uint64_t key_changes_ = 0;
};

}  // namespace ff::net

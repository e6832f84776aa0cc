// TLS 1.3 under a connection (connection.h), over a TCP socket. Both sides show a certificate and
// verify the other's against the same file of authorities; the client also checks that the
// certificate is for the host it meant to reach. What a peer may do is not decided here: whoever
// has a certificate of the authority is let in, and the handshake above asks for its key.
//
// There is no resumption and no early data: connections are few and last long.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>

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
  std::string cert;  // ours, then those between it and the authority
  std::string key;   // ours, not encrypted
  std::string ca;    // the authorities that we trust
};

// What all TLS connections of a process share. Any thread may use it.
class TlsContext {
 public:
  // Errors name the file. Errc::refused: a key that others may read (group too, unless it is
  // root's), a certificate that is not valid now. Errc::usage: files that hold something else.
  static Result<std::shared_ptr<const TlsContext>> make(io::Disk& disk, const TlsFiles& files);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsStream;
  TlsContext() = default;
  Result<void> load(io::Disk& disk, const TlsFiles& files);

  ssl_ctx_st* context_ = nullptr;
  bio_method_st* socket_method_ = nullptr;  // TlsStream's
};

class TlsStream final : public Stream {
 public:
  // The handshake, without a time limit. Errc::refused: a certificate that one of us does not
  // accept, or not the one of `host`, a name or numeric address. Errc::corrupt: no TLS 1.3.
  //
  // The client is done before the server has seen its certificate: a server that refuses it says so
  // in the client's first read.
  static Task<Result<std::unique_ptr<TlsStream>>> connect(std::unique_ptr<SocketStream> socket,
                                                          std::shared_ptr<const TlsContext> context,
                                                          std::string host);
  static Task<Result<std::unique_ptr<TlsStream>>> accept(std::unique_ptr<SocketStream> socket,
                                                         std::shared_ptr<const TlsContext> context);
  ~TlsStream() override;

  // Errc::unreachable also when the peer is gone without a word: somebody may have cut it off.
  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override;
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override;
  // The event that the last try_ needs: a read may have to write first, and a write to read.
  Event& readable() override;
  Event& writable() override;
  void close() override;
  std::string peer() const override;
  std::string local() const override { return socket_->local(); }

  // For the calls of OpenSSL that want bytes of the socket.
  struct Calls;

 private:
  // Plaintext of one record, the most there can be.
  static constexpr size_t kRecordBytes = 16 * kKiB;
  enum class Outcome : uint8_t { done, wants_read, wants_write, ended };

  TlsStream(std::unique_ptr<SocketStream> socket, std::shared_ptr<const TlsContext> context);
  Result<void> start(bool as_client);
  Result<void> expect_host(std::string host);
  Task<Result<void>> shake_hands();
  Result<Outcome> outcome(int returned);
  Error failure(int code);
  void fill_record(std::span<const ByteView> from, size_t skip);

  std::unique_ptr<SocketStream> socket_;
  std::shared_ptr<const TlsContext> context_;
  ssl_st* ssl_ = nullptr;
  std::string host_;                   // client: whom we expect
  std::optional<Error> socket_error_;  // met below OpenSSL
  bool socket_ended_ = false;
  std::optional<Error> error_;  // nothing works any more
  bool closed_ = false;
  bool read_wants_write_ = false;
  bool write_wants_read_ = false;
  // Taken from the pieces of a try_write; kept, with its size, while the socket takes nothing.
  std::array<std::byte, kRecordBytes> record_;
  size_t record_size_ = 0;
};

}  // namespace ff::net

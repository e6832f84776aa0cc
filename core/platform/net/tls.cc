// tls.cc: one TLS connection. OpenSSL accesses the socket through a BIO; if the socket would block,
// the stream waits for the corresponding event.
#include "platform/net/tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "platform/base/check.h"
#include "platform/net/tls_bio.h"

namespace ff::net {

namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kRecordsABatch = 8;
constexpr size_t kBatchBytes = kRecordsABatch * kRecordBytes;
// OpenSSL reads as much from the socket at once, after the handshake.
constexpr size_t kReadBufferBytes = 128 * kKiB;

// Memory for encrypted records: the thread's connections use it one after the other.
std::string& spare_buffer() {
  thread_local std::string spare;
  return spare;
}

}  // namespace

bio_method_st* TlsStream::SocketBio::make_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "ff socket");
  if (method == nullptr) return nullptr;
  BIO_meth_set_read_ex(method, read);
  BIO_meth_set_write_ex(method, write);
  BIO_meth_set_ctrl(method, control);
  return method;
}

int TlsStream::SocketBio::read(BIO* bio, char* into, size_t size, size_t* got) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *got = 0;
  const ByteSpan piece(reinterpret_cast<std::byte*>(into), size);
  auto result = stream.socket_->try_read({&piece, 1});
  if (!result) {
    stream.socket_error_ = std::move(result).error();
    return 0;
  }
  if (!*result) {
    BIO_set_retry_read(bio);
    return 0;
  }
  *got = **result;
  stream.socket_ended_ = *got == 0;
  return *got > 0 ? 1 : 0;
}

// Never blocks: send_encrypted() passes the records on.
int TlsStream::SocketBio::write(BIO* bio, const char* from, size_t size, size_t* wrote) {
  auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  stream.encrypted_.append(from, size);
  *wrote = size;
  return 1;
}

long TlsStream::SocketBio::control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return static_cast<TlsStream*>(BIO_get_data(bio))->socket_ended_;
  return 0;
}

TlsStream::TlsStream(std::unique_ptr<SocketStream> socket,
                     std::shared_ptr<const TlsContext> context)
    : socket_(std::move(socket)), context_(std::move(context)) {}

TlsStream::~TlsStream() {
  close();
  SSL_free(ssl_);
}

Result<void> TlsStream::start(bool as_client) {
  ERR_clear_error();
  ssl_ = SSL_new(context_->context_);
  BIO* const bio = BIO_new(context_->socket_method_);
  FF_CHECK(ssl_ != nullptr && bio != nullptr);
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  SSL_set_app_data(ssl_, this);
  if (!as_client) {
    SSL_set_accept_state(ssl_);
    // OpenSSL refuses every key where the server also asks for a certificate.
    if (context_->keyring_ != nullptr) SSL_set_verify(ssl_, SSL_VERIFY_NONE, nullptr);
    return {};
  }
  SSL_set_connect_state(ssl_);
  return context_->keyring_ != nullptr ? take_credential() : expect_host(expected_.host);
}

std::unique_ptr<SocketStream> TlsStream::release_socket() {
  FF_CHECK(SSL_has_pending(ssl_) == 0 && encrypted_.empty());
  closed_ = true;  // without a close_notify
  return std::move(socket_);
}

Result<void> TlsStream::take_credential() {
  credential_ = context_->keyring_->credential(expected_.service);
  if (credential_) return {};
  return no_key_for(*context_->keyring_, expected_.service);
}

// Requires a certificate with this name among its subject alternative names.
Result<void> TlsStream::expect_host(std::string host) {
  host.resize(std::min(host.find('%'), host.size()));  // the zone of fe80::1%eth0
  X509_VERIFY_PARAM* const rules = SSL_get0_param(ssl_);
  X509_VERIFY_PARAM_set_hostflags(
      rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  std::array<unsigned char, sizeof(in6_addr)> address;
  size_t size = 0;
  if (::inet_pton(AF_INET, host.c_str(), address.data()) == 1) size = sizeof(in_addr);
  if (::inet_pton(AF_INET6, host.c_str(), address.data()) == 1) size = sizeof(in6_addr);
  // Without a name OpenSSL checks none.
  const bool set = size > 0 ? X509_VERIFY_PARAM_set1_ip(rules, address.data(), size) == 1
                            : !host.empty() && SSL_set_tlsext_host_name(ssl_, host.c_str()) == 1 &&
                                  X509_VERIFY_PARAM_set1_host(rules, host.data(), host.size()) == 1;
  if (set) return {};
  return fail(Errc::usage, "'{}' is not a valid host name for a certificate", host);
}

Task<Result<std::unique_ptr<TlsStream>>> TlsStream::connect(
    std::unique_ptr<SocketStream> socket, std::shared_ptr<const TlsContext> context,
    TlsServer expected) {
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(socket), std::move(context)));
  stream->expected_ = std::move(expected);
  FF_CO_TRY(stream->start(true));
  FF_CO_TRY(co_await stream->shake_hands());
  co_return stream;
}

Task<Result<std::unique_ptr<TlsStream>>> TlsStream::accept(
    std::unique_ptr<SocketStream> socket, std::shared_ptr<const TlsContext> context) {
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(socket), std::move(context)));
  FF_CO_TRY(stream->start(false));
  FF_CO_TRY(co_await stream->shake_hands());
  co_return stream;
}

Task<Result<void>> TlsStream::shake_hands() {
  for (;;) {
    ERR_clear_error();
    auto next = outcome(SSL_do_handshake(ssl_));
    auto sent = co_await send_handshake();
    if (!next) co_return std::move(next).error().with_context(peer() + ": ");
    if (!sent) co_return std::move(sent).error().with_context(peer() + ": ");
    if (*next == Outcome::done) break;
    if (*next == Outcome::ended) {
      co_return fail(Errc::unreachable,
                     "{}: the peer closed the connection during the TLS handshake", peer());
    }
    FF_CO_TRY(co_await socket_->readable().wait());
  }
  const bool by_key = SSL_session_reused(ssl_) == 1;
  if (by_key != (context_->keyring_ != nullptr)) {
    error_ = fail(Errc::refused, "{}: the TLS handshake was without a key", peer());
    co_return *error_;
  }
  SSL_set_default_read_buffer_len(ssl_, kReadBufferBytes);
  co_return Result<void>();
}

Task<Result<void>> TlsStream::send_handshake() {
  for (;;) {
    FF_CO_TRY(const bool sent, send_encrypted());
    if (sent) co_return Result<void>();
    FF_CO_TRY(co_await socket_->writable().wait());
  }
}

// Converts the return value of an OpenSSL call. An error fails the stream for good.
Result<TlsStream::Outcome> TlsStream::outcome(int returned) {
  const int code = SSL_get_error(ssl_, returned);
  switch (code) {
    case SSL_ERROR_NONE: return Outcome::done;
    case SSL_ERROR_WANT_READ: return Outcome::wants_read;
    case SSL_ERROR_ZERO_RETURN: return Outcome::ended;
    default: error_ = failure(code); return *error_;
  }
}

Error TlsStream::failure(int code) {
  if (socket_error_) return *socket_error_;
  // The last error in the queue is the summary of the others.
  const unsigned long last = ERR_peek_last_error();
  const int reason = ERR_GET_LIB(last) == ERR_LIB_SSL ? ERR_GET_REASON(last) : 0;
  const long verified = SSL_get_verify_result(ssl_);
  const std::string text = ssl_error_text();
  if (socket_ended_ || code != SSL_ERROR_SSL) {
    return fail(Errc::unreachable, "the connection was cut off without a TLS close_notify");
  }
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    Error error = fail(Errc::refused, "the peer's certificate is not accepted{}{}: {}",
                       expected_.host.empty() ? "" : " for host ", expected_.host,
                       X509_verify_cert_error_string(verified));
    error.hint =
        "Compare it with the file of authorities (net.tls-ca); its hosts are shown by"
        " openssl x509 -noout -ext subjectAltName -in FILE.";
    return error;
  }
  if (context_->keyring_ != nullptr && !SSL_is_init_finished(ssl_))
    return key_failure(reason, text);
  if (reason > SSL_AD_REASON_OFFSET) {
    return fail(Errc::refused, "the peer refused our TLS connection: {}", text);
  }
  if (!SSL_is_init_finished(ssl_)) {
    Error error = fail(Errc::corrupt, "no TLS 1.3 handshake with a certificate: {}", text);
    error.hint = "Both ends need net.tls-cert, net.tls-key and net.tls-ca.";
    return error;
  }
  return fail(Errc::corrupt, "TLS: {}", text);
}

Result<std::optional<size_t>> TlsStream::try_read(std::span<const ByteSpan> into) {
  if (closed_) return std::optional<size_t>(0);
  if (error_) return *error_;
  size_t got = 0;
  for (ByteSpan piece : into) {
    while (!piece.empty()) {
      ERR_clear_error();
      size_t part = 0;
      const int returned = SSL_read_ex(ssl_, piece.data(), piece.size(), &part);
      if (returned == 1) {
        got += part;
        piece = piece.subspan(part);
        continue;
      }
      auto result = outcome(returned);
      if (got > 0) return std::optional(got);  // the next call returns the error
      if (!result) return std::move(result).error();
      if (*result == Outcome::ended) return std::optional<size_t>(0);
      return std::optional<size_t>();
    }
  }
  return std::optional(got);
}

// The last record may have arrived in part; the rest is what the socket can expect.
void TlsStream::expect(size_t bytes) {
  constexpr size_t kRecordOverhead = 256;  // RFC 8446, 5.2
  constexpr size_t kLastRecord = kRecordBytes + kRecordOverhead;
  socket_->expect(bytes > kLastRecord ? bytes - kLastRecord : 1);
}

// Passes encrypted records to the socket; false: it accepts no more now.
Result<bool> TlsStream::send_encrypted() {
  while (encrypted_begin_ < encrypted_.size()) {
    const ByteView rest = as_bytes(encrypted_).subspan(encrypted_begin_);
    auto wrote = socket_->try_write({&rest, 1});
    if (!wrote) {
      error_ = std::move(wrote).error();
      return *error_;
    }
    if (!*wrote) return false;
    encrypted_begin_ += **wrote;
  }
  encrypted_begin_ = 0;
  // One buffer a thread serves all its connections; those that wait keep theirs.
  std::string& spare = spare_buffer();
  if (spare.capacity() < encrypted_.capacity()) std::swap(spare, encrypted_);
  spare.clear();
  encrypted_ = std::string();
  return true;
}

// Encrypts one record of the bytes after the first `skip` of the pieces, or several that lie in one
// piece; returns the number of bytes.
Result<size_t> TlsStream::encrypt_record(std::span<const ByteView> from, size_t skip) {
  thread_local std::array<std::byte, kRecordBytes> record;
  ByteView plain;
  size_t copied = 0;
  for (ByteView piece : from) {
    const size_t skipped = std::min(skip, piece.size());
    skip -= skipped;
    piece = piece.subspan(skipped);
    if (copied == 0 && piece.size() >= kRecordBytes) {
      plain = piece.first(std::min(piece.size() / kRecordBytes * kRecordBytes, kBatchBytes));
      break;
    }
    const size_t part = std::min(piece.size(), record.size() - copied);
    if (part > 0) std::memcpy(record.data() + copied, piece.data(), part);
    copied += part;
  }
  if (plain.empty()) plain = ByteView(record).first(copied);
  ERR_clear_error();
  size_t wrote = 0;
  const int returned = SSL_write_ex(ssl_, plain.data(), plain.size(), &wrote);
  if (returned == 1) return wrote;
  FF_TRY(const Outcome result, outcome(returned));
  FF_CHECK(result == Outcome::ended);  // the BIO accepts everything
  return fail(Errc::unreachable, "the peer has closed");
}

// Encrypts as much of the `bytes` after the first `skip` as one write to the socket should take.
Result<size_t> TlsStream::encrypt(std::span<const ByteView> from, size_t skip, size_t bytes) {
  std::swap(encrypted_, spare_buffer());
  encrypted_.reserve(kBatchBytes + kBatchBytes / kRecordsABatch);
  size_t taken = 0;
  while (taken < std::min(bytes, kBatchBytes)) {
    FF_TRY(const size_t record, encrypt_record(from, skip + taken));
    taken += record;
  }
  bytes_with_key_ += taken;
  if (bytes_with_key_ >= key_bytes_) {
    FF_CHECK(SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
    bytes_with_key_ = 0;
    key_changes_++;
  }
  return taken;
}

Result<std::optional<size_t>> TlsStream::try_write(std::span<const ByteView> from) {
  if (closed_) return fail(Errc::unreachable, "the connection is closed");
  if (error_) return *error_;
  size_t given = 0;
  for (const ByteView piece : from) given += piece.size();
  size_t taken = 0;
  for (;;) {
    FF_TRY(const bool sent, send_encrypted());
    if (!sent) break;
    const size_t reported = std::min(unreported_, given - taken);
    taken += reported;
    unreported_ -= reported;
    if (taken == given) break;
    FF_TRY(unreported_, encrypt(from, taken, given - taken));
  }
  if (taken == 0 && given > 0) return std::optional<size_t>();
  return std::optional(taken);
}

void TlsStream::close() {
  if (closed_) return;
  closed_ = true;
  // Sends close_notify if the socket accepts it at once.
  if (ssl_ != nullptr && !error_ && SSL_is_init_finished(ssl_)) {
    ERR_clear_error();
    SSL_shutdown(ssl_);
    (void)send_encrypted();
    ERR_clear_error();
  }
  socket_->close();
}

std::string TlsStream::peer() const {
  return fmt::format("{} (tls)", socket_->peer_address().text());
}

}  // namespace ff::net

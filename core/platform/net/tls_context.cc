// tls_context.cc: loads and checks certificates and keys, so that a daemon reports problems at its
// start and not at its first connection.
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>

#include "platform/base/check.h"
#include "platform/net/tls.h"
#include "platform/net/tls_bio.h"

namespace ff::net {

namespace {

constexpr uint64_t kFileMax = 1 * kMiB;

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using CertPtr = std::unique_ptr<X509, Free<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;

Error wrong(const std::string& path, std::string_view what, std::string_view hint) {
  const std::string cause = ssl_error_text();
  Error error = fail(Errc::usage, "{}: {}{}{}", path, what, cause.empty() ? "" : ": ", cause);
  error.hint = hint;
  return error;
}

Result<std::string> read_whole(io::File& file) {
  FF_TRY(const auto info, file.info());
  if (info.kind != io::FileKind::regular || info.size > kFileMax) {
    return fail(Errc::usage, "{}: not a file of at most {} bytes", file.path(), kFileMax);
  }
  std::string text(info.size, '\0');
  FF_TRY(const size_t got,
         file.read_at({reinterpret_cast<std::byte*>(text.data()), text.size()}, 0));
  text.resize(got);
  return text;
}

Result<BioPtr> open_pem(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::read}));
  FF_TRY(const std::string text, read_whole(*file));
  BioPtr copy(BIO_new(BIO_s_mem()));
  FF_CHECK(copy != nullptr);
  FF_CHECK(text.empty() || BIO_write(copy.get(), text.data(), static_cast<int>(text.size())) > 0);
  return copy;
}

// Accepts a key that only its owner can read, or a key of root that its group can read too.
Result<BioPtr> open_key(io::Disk& disk, const std::string& path) {
  FF_TRY(const auto file, disk.open(path, {.access = io::AccessMode::read}));
  FF_TRY(const auto info, file->info());
  const uint32_t forbidden = info.uid == 0 ? 037 : 077;
  if ((info.mode & forbidden) != 0) {
    Error error =
        fail(Errc::refused, "{}: other users can read this key, its mode is {:o}", path, info.mode);
    error.hint =
        fmt::format("Run chmod 600 {} (and make a new key if somebody has read it).", path);
    return error;
  }
  return open_pem(disk, path);
}

std::string text_of(const ASN1_TIME* time) {
  const BioPtr out(BIO_new(BIO_s_mem()));
  FF_CHECK(out != nullptr);
  if (ASN1_TIME_print(out.get(), time) != 1) return "an unreadable time";
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return {data, static_cast<size_t>(size)};
}

Result<void> check_valid_now(const std::string& path, const X509* cert) {
  const ASN1_TIME* const first = X509_get0_notBefore(cert);
  const ASN1_TIME* const last = X509_get0_notAfter(cert);
  if (X509_cmp_current_time(last) < 0) {
    Error error = fail(Errc::refused, "{}: the certificate has expired on {}", path, text_of(last));
    error.hint = "Install a new certificate from its CA.";
    return error;
  }
  if (X509_cmp_current_time(first) > 0) {
    Error error =
        fail(Errc::refused, "{}: the certificate is valid from {} only", path, text_of(first));
    error.hint = "Check the clock of this machine.";
    return error;
  }
  return {};
}

// The next certificate of the file; null at the end.
Result<CertPtr> next_certificate(const std::string& path, BIO* pem) {
  ERR_clear_error();
  CertPtr cert(PEM_read_bio_X509(pem, nullptr, nullptr, nullptr));
  if (cert != nullptr) return cert;
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return wrong(path, "a damaged certificate", "Write the file again, in PEM.");
  }
  ERR_clear_error();
  return cert;
}

Result<void> use_certificates(SSL_CTX* context, io::Disk& disk, const std::string& path) {
  FF_TRY(const auto pem, open_pem(disk, path));
  FF_TRY(const CertPtr own, next_certificate(path, pem.get()));
  if (own == nullptr) {
    return wrong(path, "no certificate in it", "Give a file in PEM (BEGIN CERTIFICATE).");
  }
  FF_TRY(check_valid_now(path, own.get()));
  if (SSL_CTX_use_certificate(context, own.get()) != 1) {
    return wrong(path, "the certificate cannot be used", "Make one with today's sizes.");
  }
  for (;;) {
    FF_TRY(const CertPtr between, next_certificate(path, pem.get()));
    if (between == nullptr) return {};
    if (SSL_CTX_add1_chain_cert(context, between.get()) != 1) {
      return wrong(path, "a certificate in it cannot be used", "Make one with today's sizes.");
    }
  }
}

Result<void> use_key(SSL_CTX* context, io::Disk& disk, const TlsFiles& files) {
  FF_TRY(const auto pem, open_key(disk, files.key));
  ERR_clear_error();
  // A daemon cannot ask for a pass phrase.
  const auto no_phrase = [](char*, int, int, void*) { return -1; };
  const KeyPtr key(PEM_read_bio_PrivateKey(pem.get(), nullptr, no_phrase, nullptr));
  if (key == nullptr) {
    return wrong(files.key, "no private key that can be read",
                 "Give a file in PEM, without a pass phrase.");
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return wrong(files.key, "not the key of the certificate " + files.cert,
                 "Give the certificate and the key that were made together.");
  }
  return {};
}

Result<void> trust_authorities(SSL_CTX* context, io::Disk& disk, const std::string& path) {
  FF_TRY(const auto pem, open_pem(disk, path));
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for (size_t count = 0;; count++) {
    FF_TRY(const CertPtr authority, next_certificate(path, pem.get()));
    if (authority == nullptr && count > 0) return {};
    if (authority == nullptr) {
      return wrong(path, "no certificate in it", "Give a file in PEM (BEGIN CERTIFICATE).");
    }
    if (X509_STORE_add_cert(store, authority.get()) != 1) {
      return wrong(path, "a certificate in it cannot be used", "Write the file again, in PEM.");
    }
  }
}

}  // namespace

std::string ssl_error_text() {
  std::string text;
  while (const unsigned long code = ERR_get_error()) {
    const char* const reason = ERR_reason_error_string(code);
    if (!text.empty()) text += ", ";
    text += reason != nullptr ? std::string(reason) : fmt::format("error {:#x}", code);
  }
  return text;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::make(io::Disk& disk, const TlsFiles& files) {
  std::shared_ptr<TlsContext> context(new TlsContext());
  FF_TRY(context->load(disk, files));
  return std::shared_ptr<const TlsContext>(std::move(context));
}

TlsContext::TlsContext() {
  ERR_clear_error();
  context_ = SSL_CTX_new(TLS_method());
  socket_method_ = TlsStream::SocketBio::make_method();
  FF_CHECK(context_ != nullptr && socket_method_ != nullptr);
  FF_CHECK(SSL_CTX_set_min_proto_version(context_, TLS1_3_VERSION) == 1);
  FF_CHECK(SSL_CTX_set_max_proto_version(context_, TLS1_3_VERSION) == 1);
  SSL_CTX_set_verify(context_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(context_, SSL_SESS_CACHE_OFF);
  FF_CHECK(SSL_CTX_set_num_tickets(context_, 0) == 1);
  // Read-ahead: one read of the socket may return several records.
  SSL_CTX_set_read_ahead(context_, 1);
  SSL_CTX_set_mode(context_, SSL_MODE_RELEASE_BUFFERS);
}

Result<void> TlsContext::load(io::Disk& disk, const TlsFiles& files) {
  FF_TRY(use_certificates(context_, disk, files.cert));
  FF_TRY(use_key(context_, disk, files));
  if (files.ca.empty()) {
    SSL_CTX_set_verify(context_, SSL_VERIFY_NONE, nullptr);
    return {};
  }
  return trust_authorities(context_, disk, files.ca);
}

TlsContext::~TlsContext() {
  SSL_CTX_free(context_);
  BIO_meth_free(socket_method_);
}

}  // namespace ff::net

// tls_keys.cc: TLS with the pre-shared keys of entities. OpenSSL takes a key as a session that the
// client resumes, and asks for it by callbacks.
#include <openssl/ssl.h>

#include <array>

#include "platform/base/check.h"
#include "platform/net/tls.h"

namespace ff::net {

namespace {

// The cipher whose hash the keys are used with; OpenSSL may choose another one with this hash.
constexpr std::array<unsigned char, 2> kCipher = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256

SSL_SESSION* session_of(SSL* ssl, const auth::Key& key) {
  SSL_SESSION* const session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kCipher.data());
  FF_CHECK(session != nullptr && cipher != nullptr);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(key.data());
  FF_CHECK(SSL_SESSION_set1_master_key(session, bytes, key.size()) == 1);
  FF_CHECK(SSL_SESSION_set_cipher(session, cipher) == 1);
  FF_CHECK(SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1);
  return session;
}

TlsStream& stream_of(const SSL* ssl) { return *static_cast<TlsStream*>(SSL_get_app_data(ssl)); }

}  // namespace

struct TlsStream::KeyCallbacks {
  // Client: the identity and key to present. `hash`: the one that the server wants, if it is known.
  static int use(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* size,
                 SSL_SESSION** session) {
    const TlsStream& stream = stream_of(ssl);
    *session = nullptr;
    if (!stream.credential_ || (hash != nullptr && EVP_MD_get_type(hash) != NID_sha256)) return 1;
    *identity = reinterpret_cast<const unsigned char*>(stream.credential_->identity.data());
    *size = stream.credential_->identity.size();
    *session = session_of(ssl, stream.credential_->key);
    return 1;
  }

  // Server: the key of an identity. No session: OpenSSL refuses the client.
  static int find(SSL* ssl, const unsigned char* identity, size_t size, SSL_SESSION** session) {
    TlsStream& stream = stream_of(ssl);
    *session = nullptr;
    auto client = auth::parse_identity({reinterpret_cast<const char*>(identity), size});
    if (!client) {
      stream.refusal_ = std::move(client).error();
      return 1;
    }
    const auto key = stream.context_->keyring_->key_of(*client);
    if (!key) {
      stream.refusal_ = key.error();
      return 1;
    }
    stream.client_ = std::move(*client);
    *session = session_of(ssl, *key);
    return 1;
  }
};

std::shared_ptr<const TlsContext> TlsContext::make(std::shared_ptr<const auth::Keyring> keyring) {
  std::shared_ptr<TlsContext> context(new TlsContext());
  context->keyring_ = std::move(keyring);
  FF_CHECK(SSL_CTX_set_ciphersuites(context->context_,
                                    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1);
  SSL_CTX_set_psk_use_session_callback(context->context_, TlsStream::KeyCallbacks::use);
  SSL_CTX_set_psk_find_session_callback(context->context_, TlsStream::KeyCallbacks::find);
  return context;
}

Error no_key_for(const auth::Keyring& keyring, const auth::Service& service) {
  Error error = fail(Errc::refused, "{} has no key for {}", keyring.text(), service.text());
  if (!service.name.empty()) error.hint = "Managers make it: are they reachable?";
  return error;
}

// An error of the handshake with keys, in words that name the key and the next step.
Error TlsStream::key_failure(int reason, const std::string& text) const {
  const std::string self = context_->keyring_->text();
  if (refusal_) return *refusal_;
  if (client_ && reason == SSL_R_BINDER_DOES_NOT_VERIFY) {
    return fail(Errc::refused, "wrong key: the peer claims to be {}, but its key differs",
                client_->full_name());
  }
  const bool by_alert = reason > SSL_AD_REASON_OFFSET;
  const int alert = reason - SSL_AD_REASON_OFFSET;
  if (credential_ && by_alert &&
      (alert == SSL_AD_ILLEGAL_PARAMETER || alert == SSL_AD_DECRYPT_ERROR)) {
    Error error = fail(Errc::refused, "wrong key: {} does not accept the key of {}",
                       expected_.service.text(), self);
    error.hint = "The key is of another cluster, or the address is: compare both.";
    return error;
  }
  if (credential_ && by_alert && alert == SSL_AD_HANDSHAKE_FAILURE) {
    Error error =
        fail(Errc::refused, "unknown key: the peer does not know '{}'", credential_->identity);
    error.hint = "Make a new one: ff admin key create.";
    return error;
  }
  const bool plain = reason == SSL_R_WRONG_VERSION_NUMBER;
  Error error = plain ? fail(Errc::refused, "connection refused: the peer has no key")
                      : fail(Errc::corrupt, "no TLS 1.3 handshake with a key: {}", text);
  error.hint = "Both ends need a key of the same cluster (--key), or both --insecure.";
  return error;
}

auth::Key TlsStream::export_key(std::string_view label) const {
  auth::Key key;
  FF_CHECK(SSL_export_keying_material(ssl_, reinterpret_cast<unsigned char*>(key.data()),
                                      key.size(), label.data(), label.size(), nullptr, 0, 0) == 1);
  return key;
}

}  // namespace ff::net

// access_key.cc: base64url (RFC 4648, 5) of identities and derived keys.
#include "storage/s3/access_key.h"

#include <algorithm>

#include "storage/s3/hash.h"

namespace ff::s3 {

namespace {

constexpr std::string_view kIdentityBegin = "ff2 ";
constexpr std::string_view kSecretInfo = "ff2 s3";
// Twice what an identity of kIdentityMax bytes takes.
constexpr size_t kAccessKeyMax = 2 * auth::kIdentityMax;

std::string base64url(std::string_view bytes) {
  std::string text = base64(bytes);
  while (text.ends_with('=')) text.pop_back();
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

}  // namespace

std::string access_key_of(const auth::Entity& entity) {
  const std::string identity = auth::format_identity(entity);
  return base64url(std::string_view(identity).substr(kIdentityBegin.size()));
}

Result<auth::Entity> parse_access_key(std::string_view text) {
  const Error unknown = fail(Errc::refused, "it is no access key of this cluster");
  if (text.size() > kAccessKeyMax) return unknown;
  std::string padded(text);
  std::ranges::replace(padded, '-', '+');
  std::ranges::replace(padded, '_', '/');
  while (padded.size() % 4 != 0) padded += '=';
  const auto identity = parse_base64(padded);
  if (!identity) return unknown;
  auto entity = auth::parse_identity(std::string(kIdentityBegin) + *identity);
  if (!entity) return unknown;
  return std::move(*entity);
}

auth::SecretText secret_key_of(const auth::Key& client_key) {
  const auth::Key secret = auth::hkdf_sha256(client_key, kSecretInfo);
  std::string text = base64url(as_text({secret.data(), secret.size()}));
  auth::SecretText kept(text.data(), text.size());
  auth::cleanse(text.data(), text.size());
  return kept;
}

}  // namespace ff::s3

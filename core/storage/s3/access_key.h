// The keys with which clients of S3 sign, derived from a token (auth/keyring.h): the access key is
// its identity, and the secret key derives from its key for the metadata service. So a server that
// holds the root key knows the secret of every access key without a table, and somebody who learns
// a secret can use S3 only.
//
//   access key   base64url of the identity without "ff2 ", without padding
//   secret key   base64url of HKDF-SHA256(client key for "meta", "ff2 s3"), without padding
#pragma once

#include <string>
#include <string_view>

#include "platform/auth/entity.h"
#include "platform/auth/key.h"
#include "platform/auth/secret_memory.h"
#include "platform/base/result.h"

namespace ff::s3 {

std::string access_key_of(const auth::Entity& entity);
// Errc::refused: it is no access key.
Result<auth::Entity> parse_access_key(std::string_view text);

// `client_key`: what the holder of the token has for the metadata service.
auth::SecretText secret_key_of(const auth::Key& client_key);

}  // namespace ff::s3

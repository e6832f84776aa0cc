// Capabilities: permission of a restricted entity (auth/entity.h) for the chunks of one file, for a
// few seconds. The metadata service, which knows files and permissions, signs them. Storage nodes,
// which know neither, verify them in each call of such a client, against the key that it proved on
// this connection: nobody else can use them. The client renews them; the metadata service then
// checks the permissions again.
//
//   mac = HMAC-SHA256(capability key, "ff capability|" inode:u64 rights:u32 expires_ns:i64
//                     serial:u64 uid:u32 client:u64 session:u64 generation:u32 entity)
//                                                                                   little-endian
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/auth/keyring.h"
#include "platform/base/result.h"

namespace ff::chain {

constexpr uint32_t kRightRead = 1;
constexpr uint32_t kRightWrite = 2;

struct Capability {
  uint64_t inode = 0;
  uint32_t rights = 0;      // bit set of the rights above
  int64_t expires_ns = 0;   // wall clock; invalid from then on
  std::string entity = {};  // the full name of the holder
  uint64_t serial = 0;      // of the holder's key
  uint32_t uid = 0;         // the user for whom the holder opened the file
  uint64_t client = 0;      // the session of the open file: 0 for one that only reads
  uint64_t session = 0;
  uint32_t generation = 1;  // of the key that signs it
};

// Returns a serialized wire::Capability.
std::string sign_capability(const auth::Key& key, const Capability& capability);
// The capability, if its MAC is right. Errc::refused otherwise, with the reason.
Result<Capability> verify_capability(const auth::Keyring& keyring, std::string_view bytes);
// Whether `bytes` grants `holder` `right` for the chunks of `inode` at this time. Errors: refused,
// with the reason; is_capability_expired() is true for it when only the time is wrong.
Result<void> check_capability(const auth::Keyring& keyring, std::string_view bytes,
                              const auth::Entity& holder, uint64_t inode, uint32_t right,
                              int64_t now_wall_ns);
// Whether a new capability would help. Decided by the message, because only the message is
// transmitted.
bool is_capability_expired(const Error& error);

}  // namespace ff::chain

// Capabilities: permission of a user for the chunks of one file, for a limited time. The metadata
// service, which knows files and permissions, signs them with the cluster key. Storage nodes, which
// know neither, verify them in each call of an untrusted client (rpc/handshake.h). Anyone who holds
// a capability can use it, so they are short-lived and never displayed.
//
//   mac = HMAC-SHA256(cluster key, "ff capability|" inode:u64 rights:u32 expires_ns:i64)
//                                                                           little-endian
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/auth/key.h"
#include "platform/base/result.h"

namespace ff::chain {

constexpr uint32_t kRightRead = 1;
constexpr uint32_t kRightWrite = 2;

struct Capability {
  uint64_t inode = 0;
  uint32_t rights = 0;     // bit set of the rights above
  int64_t expires_ns = 0;  // wall clock; invalid from then on
};

// Returns a serialized wire::Capability.
std::string sign_capability(const auth::Key& cluster, const Capability& capability);
// Whether `bytes` grants `right` for the chunks of `inode` at this time. Errors: refused, with the
// reason; is_capability_expired() is true for it when only the time is wrong.
Result<void> check_capability(const auth::Key& cluster, std::string_view bytes, uint64_t inode,
                              uint32_t right, int64_t now_wall_ns);
// Whether a new capability would help. Decided by the message, because only the message is
// transmitted.
bool is_capability_expired(const Error& error);

}  // namespace ff::chain

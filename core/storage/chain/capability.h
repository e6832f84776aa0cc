// Capabilities: what a user may do with the chunks of one file, for a while. Whoever knows files
// and their permissions signs them with the cluster key; storage nodes, which know neither, check
// them with each call of a client that is not trusted (rpc/handshake.h). Whoever has one may use
// it, so they are short-lived and not shown.
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
  uint32_t rights = 0;     // a set of the above
  int64_t expires_ns = 0;  // wall: from then on it is worth nothing
};

// A wire::Capability.
std::string sign(const auth::Key& cluster, const Capability& capability);
// Whether `bytes` gives `right` to the chunks of `inode` now. Errc::refused: it does not, and the
// message says why; is_expired() of it when all that is wrong is the time.
Result<void> check(const auth::Key& cluster, std::string_view bytes, uint64_t inode, uint32_t right,
                   int64_t now_wall_ns);
// Another capability would do. By the message, which is all that comes over the wire.
bool is_expired(const Error& error);

}  // namespace ff::chain

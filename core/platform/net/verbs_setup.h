// What two ends of an RDMA connection tell each other over TCP before their queue pairs can talk.
// Both send an endpoint, then a proof; each connects its queue pair to the other's; both then send
// a ready, for a message that reaches a queue pair too early is lost. Little-endian:
//
//   endpoint := magic:u32 version:u16 0:u16 qpn:u32 psn:u32 gid:16 lid:u16 mtu:u16 receives:u16
//               reads:u16 message_max:u32 nonce:16 crc:u32
//   proof    := HMAC-SHA256 with the cluster key of "ff rdma " side "|" and the endpoints of client
//               and server; side is "client" or "server"; zeros where there is no key
//   ready    := magic:u32
//
// crc is CRC32C of the bytes before it. The version stands for all that is said on the queue pair,
// too (verbs_queue.h): ends of different versions do not connect. The proof comes before the queue
// pair can receive: a device lets every queue pair try the keys of all memory it has registered, so
// a stranger gets none, and neither does a user with a token.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "platform/auth/key.h"
#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

constexpr uint32_t kEndpointMagic = 0x31564646;  // "FFV1"
constexpr uint32_t kReadyMagic = 0x59444552;     // "REDY"
constexpr uint16_t kVerbsVersion = 1;
constexpr size_t kEndpointBytes = 64;
// Limits of what a peer may claim.
constexpr uint16_t kReceivesLimit = 4096;
constexpr uint32_t kMessageLimit = 1 * kMiB;

struct VerbsEndpoint {
  uint32_t qpn = 0;  // 24 bits, not 0
  uint32_t psn = 0;  // 24 bits: of the first packet it sends
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;          // InfiniBand; 0 on Ethernet
  uint16_t mtu = 0;          // bytes: 256, 512, ... 4096
  uint16_t receives = 0;     // messages with data that it can take: the sender's credits
  uint16_t reads = 0;        // RDMA READs that it answers at once
  uint32_t message_max = 0;  // bytes of one message that it can take
  std::array<std::byte, 16> nonce = {};
};

using EndpointBytes = std::array<std::byte, kEndpointBytes>;

EndpointBytes encode_endpoint(const VerbsEndpoint& endpoint);
// `bytes` holds kEndpointBytes. Errc::corrupt: not an endpoint, or one that cannot be.
// Errc::newer_format: of another version.
Result<VerbsEndpoint> parse_endpoint(ByteView bytes);

// Of the client's side, or the server's.
auth::Key endpoint_proof(const std::optional<auth::Key>& key, bool of_client,
                         const EndpointBytes& client, const EndpointBytes& server);

}  // namespace ff::net

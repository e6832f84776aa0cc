// The set-up exchange of an RDMA connection over TCP. Both ends send an endpoint, then a proof;
// each connects its queue pair to the other's; both then send a ready message, since a message that
// reaches an unconnected queue pair is lost. Little-endian:
//
//   endpoint := magic:u32 version:u16 0:u16 qpn:u32 psn:u32 gid:16 lid:u16 mtu:u16 receives:u16
//               reads:u16 message_max:u32 nonce:16 crc:u32
//   proof    := HMAC-SHA256 with the cluster key of "ff rdma " side "|" and the endpoints of client
//               and server; side is "client" or "server"; zeros where there is no key
//   ready    := magic:u32
//
// crc is CRC32C of the preceding bytes. The version also covers the protocol on the queue pair
// (verbs_queue_pair.h): ends of different versions do not connect. The proof precedes the queue
// pair, since a queue pair can try the keys of all memory that the device has registered: peers
// without the cluster key, and users with a token, must not get one.
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
// Upper limits of the values in a peer's endpoint.
constexpr uint16_t kReceivesLimit = 4096;
constexpr uint32_t kMessageLimit = 1 * kMiB;

struct VerbsEndpoint {
  uint32_t qpn = 0;  // 24 bits, not 0
  uint32_t psn = 0;  // 24 bits: sequence number of the first packet it sends
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;          // InfiniBand; 0 on Ethernet
  uint16_t mtu = 0;          // bytes: 256, 512, ... 4096
  uint16_t receives = 0;     // posted receives: the initial credits of the other end
  uint16_t reads = 0;        // RDMA READs that it serves concurrently
  uint32_t message_max = 0;  // largest message that it can receive, in bytes
  std::array<std::byte, 16> nonce = {};
};

using EndpointBytes = std::array<std::byte, kEndpointBytes>;

EndpointBytes encode_endpoint(const VerbsEndpoint& endpoint);
// `bytes` holds kEndpointBytes. Errc::corrupt: not an endpoint, or invalid values.
// Errc::newer_format: another version.
Result<VerbsEndpoint> parse_endpoint(ByteView bytes);

// The proof of the client's or the server's side.
auth::Key endpoint_proof(const std::optional<auth::Key>& key, bool of_client,
                         const EndpointBytes& client, const EndpointBytes& server);

}  // namespace ff::net

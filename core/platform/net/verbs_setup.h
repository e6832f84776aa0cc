// The set-up exchange of an RDMA connection. Both ends send an endpoint; each connects its queue
// pair to the other's; both then send a ready message, since a message that reaches an unconnected
// queue pair is lost. Little-endian:
//
//   endpoint := magic:u32 version:u16 0:u16 qpn:u32 psn:u32 gid:16 lid:u16 mtu:u16 receives:u16
//               reads:u16 message_max:u32 crc:u32
//   ready    := magic:u32
//
// crc is CRC32C of the preceding bytes. The version also covers the protocol on the queue pair
// (verbs_queue_pair.h): ends of different versions do not connect. Ends with keys exchange all this
// inside TLS, so that only who has proven a key gets a queue pair: it can try the keys of all
// memory that the device has registered. For this reason users get none (system_transport.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

constexpr uint32_t kEndpointMagic = 0x31564646;  // "FFV1"
constexpr uint32_t kReadyMagic = 0x59444552;     // "REDY"
constexpr uint16_t kVerbsVersion = 2;
constexpr size_t kEndpointBytes = 48;
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
};

using EndpointBytes = std::array<std::byte, kEndpointBytes>;

EndpointBytes encode_endpoint(const VerbsEndpoint& endpoint);
// `bytes` holds kEndpointBytes. Errc::corrupt: not an endpoint, or invalid values.
// Errc::newer_format: another version.
Result<VerbsEndpoint> parse_endpoint(ByteView bytes);

}  // namespace ff::net

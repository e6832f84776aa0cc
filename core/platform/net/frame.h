// Frames: what two ends of a connection say to each other (wire.md). Little-endian:
//
//   frame   := head message payload
//   head    := magic:u32 kind:u8 flags:u8 version:u16 call:u64 method:u32 deadline_ms:u32
//              message_len:u32 payload_len:u32 message_crc:u32 head_crc:u32
//
//   message := at most kMessageMax bytes: a protobuf message, or of the bulk kinds
//                push   := token:u64 offset:u64                       payload: the bytes
//                pull   := token:u64 offset:u64 ticket:u64 length:u32 payload: none
//                pulled := ticket:u64                                 payload: the bytes
//                region := id:u32 0:u32 size:u64                      a descriptor comes beside it,
//                                                                 unless size is 0: it is forgotten
//   payload := at most kPayloadMax bytes, in frames of the bulk kinds only
//
// The CRCs are CRC32C, of the message and of the head before it. Payloads carry none: their CRCs
// are end to end, in messages, where the data is stored and used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

constexpr uint32_t kFrameMagic = 0x31464646;  // "FFF1"
constexpr size_t kHeadBytes = 40;
constexpr size_t kMessageMax = 1 * kMiB;
constexpr size_t kPayloadMax = 64 * kMiB;
constexpr uint16_t kWireVersion = 1;

enum class FrameKind : uint8_t {
  hello = 1,  // the handshake, both ways, before anything else
  call,
  reply,
  ask,    // a server has bulk for a call and asks when to send it
  grant,  // the answer to an ask
  cancel,
  ping,  // answered by a ping with the flag kFlagAnswer
  bye,   // no calls after this one; those under way go on
  push,  // bulk kinds from here on: between the two net::Connections, never seen above
  pull,
  pulled,
  region,
};
constexpr FrameKind kLastFrameKind = FrameKind::region;

constexpr uint8_t kFlagAnswer = 1;   // ping: the answer to one
constexpr uint8_t kFlagGranted = 2;  // call: bulk may come without an ask

// What was wrong with what a peer sent, so that its connection had to be closed.
enum class FrameFault : uint8_t {
  none,
  magic,        // no frame of ff
  head_crc,     // a head that does not match its CRC32C
  version,      // a frame of another wire version
  kind,         // an unknown kind
  oversized,    // a message or payload over its limit
  message_crc,  // a message that does not match its CRC32C
  protocol,     // a good frame that may not come here, or not now
  handshake,    // the same, before the two ends know each other
  transport,    // below frames: a TLS record, credits, descriptors
};
// As labels of metrics have it: "head_crc".
std::string_view fault_name(FrameFault fault);

struct Head {
  FrameKind kind = FrameKind::ping;
  uint8_t flags = 0;
  uint16_t version = kWireVersion;
  uint64_t call = 0;         // number of the call this belongs to; 0 for none
  uint32_t method = 0;       // call: which
  uint32_t deadline_ms = 0;  // call: time left; 0 for none
  uint32_t message_len = 0;
  uint32_t payload_len = 0;
  uint32_t message_crc = 0;
};

struct Frame {
  Head head;
  std::string message;
};

inline bool is_bulk(FrameKind kind) { return kind >= FrameKind::push; }

// Appends head (lengths and CRC of the message filled in) and message to `out`.
void append_frame(std::string& out, Head head, std::string_view message, uint32_t payload_len = 0);

// `bytes` holds kHeadBytes. Errc::corrupt: not a frame, a bad CRC, an unknown kind, a length over
// its limit. Errc::newer_format: a frame of another version, which only a hello may be. With an
// error `fault` says which.
Result<Head> parse_head(ByteView bytes, FrameFault& fault);
// Errc::corrupt when the message does not match its head.
Result<void> check_message(const Head& head, std::string_view message, FrameFault& fault);

}  // namespace ff::net

// Frames: the units of the protocol between two ends of a connection. Little-endian:
//
//   frame   := header message payload
//   header  := magic:u32 kind:u8 flags:u8 version:u16 call:u64 method:u32 deadline_ms:u32
//              message_len:u32 payload_len:u32 message_crc:u32 head_crc:u32
//
//   message := at most kMessageMax bytes: a protobuf message, or of the bulk kinds
//                push   := token:u64 offset:u64                       payload: the bytes
//                pull   := token:u64 offset:u64 ticket:u64 length:u32 payload: none
//                pull_reply := ticket:u64                             payload: the bytes
//                region := id:u32 0:u32 size:u64                      with a file descriptor;
//                                                                 size 0: unmap it, no descriptor
//   payload := at most kPayloadMax bytes, in frames of the bulk kinds only
//
// The CRCs are CRC32C, of the message and of the header before head_crc. Payloads have none in the
// frame: their CRCs are end to end, in messages, between the places that store and use the data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::net {

constexpr uint32_t kFrameMagic = 0x31464646;  // "FFF1"
constexpr size_t kFrameHeaderBytes = 40;
constexpr size_t kMessageMax = 1 * kMiB;
constexpr size_t kPayloadMax = 64 * kMiB;
constexpr uint16_t kProtocolVersion = 2;

enum class FrameKind : uint8_t {
  hello = 1,  // the handshake, both ways, before anything else
  call,
  reply,
  request_to_send,  // the server has bulk data for a call and waits for a grant
  grant,            // allows the server to send it
  cancel,
  ping,    // answered by a ping with the flag kFlagAnswer
  goaway,  // no new calls after this; running calls continue
  push,    // bulk kinds from here on: handled by net::Connection, not visible to its user
  pull,
  pull_reply,
  region,
};
constexpr FrameKind kLastFrameKind = FrameKind::region;

constexpr uint8_t kFlagAnswer = 1;   // ping: this is the answer
constexpr uint8_t kFlagGranted = 2;  // call: bulk data needs no request_to_send

// The violation for which a peer's connection was closed.
enum class FrameFault : uint8_t {
  none,
  magic,        // not a frame of ff
  head_crc,     // a header does not match its CRC32C
  version,      // a frame of another protocol version
  kind,         // unknown frame kind
  oversized,    // a message or payload over its limit
  message_crc,  // a message does not match its CRC32C
  protocol,     // a valid frame that is not allowed in this state
  handshake,    // the same, during the handshake
  transport,    // below frames: TLS records, credits, file descriptors
};
// The label value in metrics, such as "head_crc".
std::string_view fault_name(FrameFault fault);

struct FrameHeader {
  FrameKind kind = FrameKind::ping;
  uint8_t flags = 0;
  uint16_t version = kProtocolVersion;
  uint64_t call = 0;         // number of the call; 0: none
  uint32_t method = 0;       // call: number of the method
  uint32_t deadline_ms = 0;  // call: time left; 0: no deadline
  uint32_t message_len = 0;
  uint32_t payload_len = 0;
  uint32_t message_crc = 0;
};

struct Frame {
  FrameHeader head;
  std::string message;
};

inline bool is_bulk(FrameKind kind) { return kind >= FrameKind::push; }

// Appends header (with lengths and CRCs filled in) and message to `out`.
void append_frame(std::string& out, FrameHeader head, std::string_view message,
                  uint32_t payload_len = 0);

// `bytes` holds kFrameHeaderBytes. Errc::corrupt: not a frame, CRC mismatch, unknown kind, or a
// length over its limit. Errc::newer_format: a frame of another version that is not a hello. On
// errors sets `fault`.
Result<FrameHeader> parse_frame_header(ByteView bytes, FrameFault& fault);
// Errc::corrupt: the message does not match the CRC in its header.
Result<void> check_message(const FrameHeader& head, std::string_view message, FrameFault& fault);

}  // namespace ff::net

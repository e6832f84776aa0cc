// frame.cc: encoding and decoding of frames.
#include "platform/net/frame.h"

#include <array>

#include "platform/simd/crc32c.h"

namespace ff::net {

namespace {

// Offsets in the header.
constexpr size_t kFrameMagicAt = 0;
constexpr size_t kKindAt = 4;
constexpr size_t kFlagsAt = 5;
constexpr size_t kFrameVersionAt = 6;
constexpr size_t kCallAt = 8;
constexpr size_t kMethodAt = 16;
constexpr size_t kDeadlineAt = 20;
constexpr size_t kMessageLenAt = 24;
constexpr size_t kPayloadLenAt = 28;
constexpr size_t kMessageCrcAt = 32;
constexpr size_t kHeadCrcAt = 36;
static_assert(kHeadCrcAt + sizeof(uint32_t) == kFrameHeaderBytes);

}  // namespace

std::string_view fault_name(FrameFault fault) {
  switch (fault) {
    case FrameFault::none: return "none";
    case FrameFault::magic: return "magic";
    case FrameFault::head_crc: return "head_crc";
    case FrameFault::version: return "version";
    case FrameFault::kind: return "kind";
    case FrameFault::oversized: return "oversized";
    case FrameFault::message_crc: return "message_crc";
    case FrameFault::protocol: return "protocol";
    case FrameFault::handshake: return "handshake";
    case FrameFault::transport: return "transport";
  }
  return "none";
}

void append_frame(std::string& out, FrameHeader head, std::string_view message,
                  uint32_t payload_len) {
  FF_CHECK(message.size() <= kMessageMax && payload_len <= kPayloadMax);
  FF_CHECK(payload_len == 0 || is_bulk(head.kind));
  std::array<std::byte, kFrameHeaderBytes> bytes;
  std::byte* const at = bytes.data();
  store_le<uint32_t>(at + kFrameMagicAt, kFrameMagic);
  store_le<uint8_t>(at + kKindAt, static_cast<uint8_t>(head.kind));
  store_le<uint8_t>(at + kFlagsAt, head.flags);
  store_le<uint16_t>(at + kFrameVersionAt, head.version);
  store_le<uint64_t>(at + kCallAt, head.call);
  store_le<uint32_t>(at + kMethodAt, head.method);
  store_le<uint32_t>(at + kDeadlineAt, head.deadline_ms);
  store_le<uint32_t>(at + kMessageLenAt, static_cast<uint32_t>(message.size()));
  store_le<uint32_t>(at + kPayloadLenAt, payload_len);
  store_le<uint32_t>(at + kMessageCrcAt, simd::crc32c(as_bytes(message)));
  store_le<uint32_t>(at + kHeadCrcAt, simd::crc32c(ByteView(bytes).first(kHeadCrcAt)));
  out.append(as_text(bytes));
  out.append(message);
}

Result<FrameHeader> parse_frame_header(ByteView bytes, FrameFault& fault) {
  FF_CHECK(bytes.size() >= kFrameHeaderBytes);
  const std::byte* const at = bytes.data();
  if (load_le<uint32_t>(at + kFrameMagicAt) != kFrameMagic) {
    fault = FrameFault::magic;
    return fail(Errc::corrupt, "not a frame of ff (it begins with {:#010x})",
                load_le<uint32_t>(at + kFrameMagicAt));
  }
  if (load_le<uint32_t>(at + kHeadCrcAt) != simd::crc32c(bytes.first(kHeadCrcAt))) {
    fault = FrameFault::head_crc;
    return fail(Errc::corrupt, "a frame header does not match its CRC32C");
  }
  FrameHeader head;
  const auto kind = load_le<uint8_t>(at + kKindAt);
  head.version = load_le<uint16_t>(at + kFrameVersionAt);
  if (head.version != kProtocolVersion && kind != static_cast<uint8_t>(FrameKind::hello)) {
    fault = FrameFault::version;
    return fail(Errc::newer_format, "a frame of protocol version {} (this is {})", head.version,
                kProtocolVersion);
  }
  if (kind == 0 || kind > static_cast<uint8_t>(kLastFrameKind)) {
    fault = FrameFault::kind;
    return fail(Errc::corrupt, "a frame of unknown kind {}", kind);
  }
  head.kind = static_cast<FrameKind>(kind);
  head.flags = load_le<uint8_t>(at + kFlagsAt);
  head.call = load_le<uint64_t>(at + kCallAt);
  head.method = load_le<uint32_t>(at + kMethodAt);
  head.deadline_ms = load_le<uint32_t>(at + kDeadlineAt);
  head.message_len = load_le<uint32_t>(at + kMessageLenAt);
  head.payload_len = load_le<uint32_t>(at + kPayloadLenAt);
  head.message_crc = load_le<uint32_t>(at + kMessageCrcAt);
  if (head.message_len > kMessageMax) {
    fault = FrameFault::oversized;
    return fail(Errc::corrupt, "a message of {} bytes (the limit is {})", head.message_len,
                kMessageMax);
  }
  if (head.payload_len > (is_bulk(head.kind) ? kPayloadMax : 0)) {
    fault = FrameFault::oversized;
    return fail(Errc::corrupt, "a payload of {} bytes in a frame of kind {}", head.payload_len,
                kind);
  }
  return head;
}

Result<void> check_message(const FrameHeader& head, std::string_view message, FrameFault& fault) {
  if (simd::crc32c(as_bytes(message)) != head.message_crc) {
    fault = FrameFault::message_crc;
    return fail(Errc::corrupt, "a message does not match its CRC32C");
  }
  return {};
}

}  // namespace ff::net

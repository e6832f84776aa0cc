// One malformed frame for each FrameFault, for the tests of net/ and rpc/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/net/frame.h"
#include "platform/simd/crc32c.h"

namespace ff::net {

struct BrokenFrame {
  FrameFault fault = FrameFault::none;
  Errc code = Errc::corrupt;
  std::string bytes;
  std::string_view words;  // in the error's message
};

inline std::string frame_bytes(const FrameHeader& head, std::string_view message = {}) {
  std::string bytes;
  append_frame(bytes, head, message);
  return bytes;
}

// A call frame with `value` at offset `at` of its header and a valid CRC.
inline std::string patched_call(size_t at, uint32_t value) {
  std::string bytes = frame_bytes({.kind = FrameKind::call, .call = 1, .method = 1});
  auto* const head = reinterpret_cast<std::byte*>(bytes.data());
  store_le(head + at, value);
  store_le(head + kFrameHeaderBytes - 4, simd::crc32c(ByteView(head, kFrameHeaderBytes - 4)));
  return bytes;
}

inline std::vector<BrokenFrame> broken_frames() {
  constexpr size_t kMessageLenAt = 24;
  constexpr size_t kPayloadLenAt = 28;
  const FrameHeader call{.kind = FrameKind::call, .call = 1, .method = 1};
  std::string web = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  web.resize(kFrameHeaderBytes, ' ');
  std::string bad_head = frame_bytes(call, "message");
  bad_head[9] ^= 1;
  std::string bad_message = frame_bytes(call, "message");
  bad_message.back() ^= 1;
  FrameHeader newer = call;
  newer.version = kProtocolVersion + 1;
  FrameHeader unknown = call;
  unknown.kind = static_cast<FrameKind>(static_cast<int>(kLastFrameKind) + 1);
  return {
      {FrameFault::magic, Errc::corrupt, web, "not a frame of ff"},
      {FrameFault::head_crc, Errc::corrupt, bad_head, "a frame header does not match"},
      {FrameFault::version, Errc::newer_format, frame_bytes(newer),
       "protocol version 3 (this is 2)"},
      {FrameFault::kind, Errc::corrupt, frame_bytes(unknown), "a frame of unknown kind 13"},
      {FrameFault::oversized, Errc::corrupt, patched_call(kMessageLenAt, kMessageMax + 1),
       "a message of 1048577 bytes (the limit is 1048576)"},
      {FrameFault::oversized, Errc::corrupt, patched_call(kPayloadLenAt, 1),
       "a payload of 1 bytes in a frame of kind 2"},
      {FrameFault::message_crc, Errc::corrupt, bad_message, "a message does not match"},
  };
}

}  // namespace ff::net

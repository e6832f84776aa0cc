// Bytes of a fuzzer as a stream of frames: what the two fuzz targets of the wire share.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "platform/base/check.h"
#include "platform/net/connection.h"
#include "platform/net/frame.h"
#include "platform/simd/crc32c.h"

namespace ff::net {

// Gives the input away in pieces, then ends; takes whatever is written.
class InputStream final : public Stream {
 public:
  InputStream(Loop& loop, std::string input)
      : input_(std::move(input)), readable_(loop), writable_(loop) {
    readable_.set();
    writable_.set();
  }
  Result<std::optional<size_t>> try_read(std::span<const ByteSpan> into) override {
    const size_t piece = 1 + (at_ * 7919 + 13) % 977;  // odd cuts, the same each time
    const size_t part = std::min({piece, into[0].size(), input_.size() - at_});
    FF_CHECK(!into.empty() && !into[0].empty());
    std::copy_n(as_bytes(input_).data() + at_, part, into[0].data());
    at_ += part;
    return std::optional(part);
  }
  Result<std::optional<size_t>> try_write(std::span<const ByteView> from) override {
    size_t total = 0;
    for (const ByteView piece : from) total += piece.size();
    return std::optional(total);
  }
  Event& readable() override { return readable_; }
  Event& writable() override { return writable_; }
  void close() override { at_ = input_.size(); }
  std::string peer() const override { return "fuzzer"; }
  std::string local() const override { return "target"; }

 private:
  std::string input_;
  size_t at_ = 0;
  Event readable_;
  Event writable_;
};

// Makes magic and CRCs of what looks like frames right, or hardly any input would get past them.
// The first byte says whether: even inputs stay as they are.
inline std::string repaired(std::string text) {
  if (text.empty()) return text;
  const bool repair = text[0] % 2 != 0;
  text.erase(0, 1);
  auto* const bytes = reinterpret_cast<std::byte*>(text.data());
  for (size_t at = 0; repair && text.size() - at >= kFrameHeaderBytes;) {
    std::byte* const head = bytes + at;
    const size_t rest = text.size() - at - kFrameHeaderBytes;
    const auto length = std::min<size_t>(load_le<uint32_t>(head + 24), rest);
    store_le<uint32_t>(head, kFrameMagic);
    store_le<uint32_t>(head + 24, static_cast<uint32_t>(length));
    store_le<uint32_t>(head + 32, simd::crc32c({head + kFrameHeaderBytes, length}));
    store_le<uint32_t>(head + 36, simd::crc32c({head, 36}));
    const size_t payload = std::min<size_t>(load_le<uint32_t>(head + 28), rest - length);
    at += kFrameHeaderBytes + length + payload;
  }
  return text;
}

// A frame as a seed.
inline std::string frame_seed(FrameHeader head, const std::string& message,
                              const std::string& payload = {}) {
  std::string out;
  append_frame(out, head, message, static_cast<uint32_t>(payload.size()));
  return out + payload;
}

}  // namespace ff::net

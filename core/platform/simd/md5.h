// MD5 (RFC 1321) of many messages at once. Each step of MD5 needs the one before, so one message
// keeps a processor waiting; several in the lanes of its vectors take no longer than one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/base/bytes.h"

namespace ff::simd {

// Computes one incrementally.
class Md5 {
 public:
  void update(ByteView data);
  // Starts over.
  std::array<std::byte, 16> finish();

 private:
  friend struct Md5Lanes;
  static constexpr size_t kBlockBytes = 64;

  // The first bytes of `data`, up to the end of the block that has begun.
  size_t fill(ByteView data);
  void blocks(ByteView data);

  std::array<uint32_t, 4> state_ = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476};
  uint64_t bytes_ = 0;  // in all
  std::array<std::byte, kBlockBytes> block_ = {};
};

// update() of each, at once.
struct Md5Update {
  Md5* of = nullptr;
  ByteView data = {};
};
void md5_update(std::span<const Md5Update> updates);

// How many of them take as long as one.
size_t md5_lanes();
// The code path in use: "avx512", "avx2", "sse2".
std::string_view md5_path();

}  // namespace ff::simd

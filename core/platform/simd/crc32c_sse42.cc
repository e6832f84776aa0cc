// crc32c_sse42.cc: CRC32C with the crc32 instruction of SSE 4.2, one or three streams at a time.
//
// A crc32 of eight bytes can start every cycle but takes three, so three independent stripes run in
// parallel. Their registers are then combined: a stripe followed by n bytes is multiplied by
// x^(8n). The carry-less product of a register and a 32-bit constant, fed through crc32 as eight
// message bytes, is that product modulo P times x^33; hence the -33 in the exponents. Bytes that do
// not fill three stripes are processed one word at a time.
#include <nmmintrin.h>
#include <string.h>
#include <wmmintrin.h>

#include "platform/simd/crc32c_paths.h"

namespace ff::simd {
namespace {

// Stripe sizes in bytes. Long stripes make combining negligible; short ones keep blocks of 4 KiB
// and less fast.
constexpr uint32_t kLongStripe = 4096;
constexpr uint32_t kShortStripe = 256;

__attribute__((target("sse4.2"))) inline uint64_t step(uint64_t crc, const unsigned char* data) {
  uint64_t word;
  memcpy(&word, data, 8);
  return _mm_crc32_u64(crc, word);
}

// The 64-bit product of a register and a constant, before reduction.
__attribute__((target("pclmul"))) inline uint64_t product(uint64_t crc, uint32_t constant) {
  const __m128i a = _mm_cvtsi64_si128(static_cast<long long>(crc));
  const __m128i b = _mm_cvtsi64_si128(static_cast<long long>(constant));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0)));
}

template <uint32_t kStripe>
__attribute__((target("sse4.2,pclmul"))) inline uint64_t three_stripes(uint64_t crc,
                                                                       const unsigned char* data) {
  uint64_t first = crc;
  uint64_t second = 0;
  uint64_t third = 0;
  for (uint32_t i = 0; i < kStripe; i += 8) {
    first = step(first, data + i);
    second = step(second, data + kStripe + i);
    third = step(third, data + 2 * kStripe + i);
  }
  const uint64_t ahead = product(first, crc32c_power_of_x(2 * kStripe * 8 - 33)) ^
                         product(second, crc32c_power_of_x(kStripe * 8 - 33));
  return third ^ _mm_crc32_u64(0, ahead);
}

}  // namespace

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(uint32_t crc, const unsigned char* data,
                                                        size_t length) {
  uint64_t wide = crc;
  for (; length >= 8; data += 8, length -= 8) wide = step(wide, data);
  crc = static_cast<uint32_t>(wide);
  for (; length > 0; ++data, --length) crc = _mm_crc32_u8(crc, *data);
  return crc;
}

__attribute__((target("sse4.2,pclmul"))) uint32_t crc32c_sse42_pclmul(uint32_t crc,
                                                                      const unsigned char* data,
                                                                      size_t length) {
  uint64_t wide = crc;
  for (; length >= 3 * kLongStripe; data += 3 * kLongStripe, length -= 3 * kLongStripe) {
    wide = three_stripes<kLongStripe>(wide, data);
  }
  for (; length >= 3 * kShortStripe; data += 3 * kShortStripe, length -= 3 * kShortStripe) {
    wide = three_stripes<kShortStripe>(wide, data);
  }
  return crc32c_sse42(static_cast<uint32_t>(wide), data, length);
}

}  // namespace ff::simd

// crc32c_avx512.cc: CRC32C by folding with 512-bit carry-less products (VPCLMULQDQ).
//
// Folding (Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"): sixteen
// bytes of the message may be replaced by their product with x^d modulo P, added d bits further on.
// Four registers of 64 bytes hold sixteen such lanes and fold 256 bytes ahead per round; at the end
// the lanes fold into the last one, whose sixteen bytes represent the whole message and go through
// the crc32 instruction.
//
// A lane is two reflected 64-bit halves; the first in memory is x^64 times the second. A product of
// reflected factors comes out x too high and a 32-bit constant in a 64-bit half counts x^32 more,
// so a fold over d bits takes x^(d+64-33) for the first half and x^(d-33) for the second.
#include <immintrin.h>

#include "platform/simd/crc32c_paths.h"

// GCC 12 warns about the deliberately undefined operands in its own intrinsics (bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#define FF_TARGET __attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.2")))

namespace ff::simd {
namespace {

// The constants of a fold over kBits, for each lane.
template <uint32_t kBits>
FF_TARGET inline __m128i fold_constants() {
  return _mm_set_epi64x(crc32c_power_of_x(kBits - 33), crc32c_power_of_x(kBits + 64 - 33));
}

FF_TARGET inline __m512i fold(__m512i lanes, __m512i constants, __m512i ahead) {
  const __m512i first = _mm512_clmulepi64_epi128(lanes, constants, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(lanes, constants, 0x11);
  return _mm512_ternarylogic_epi64(first, second, ahead, 0x96);  // three-way xor
}

FF_TARGET inline __m128i fold_lane(__m128i lane, __m128i constants, __m128i ahead) {
  const __m128i first = _mm_clmulepi64_si128(lane, constants, 0x00);
  const __m128i second = _mm_clmulepi64_si128(lane, constants, 0x11);
  return _mm_xor_si128(_mm_xor_si128(first, second), ahead);
}

// The register after the 64 bytes that `lanes` represents.
FF_TARGET inline uint32_t reduce(__m512i lanes) {
  __m128i lane = _mm512_extracti32x4_epi32(lanes, 3);
  lane = fold_lane(_mm512_extracti32x4_epi32(lanes, 0), fold_constants<384>(), lane);
  lane = fold_lane(_mm512_extracti32x4_epi32(lanes, 1), fold_constants<256>(), lane);
  lane = fold_lane(_mm512_extracti32x4_epi32(lanes, 2), fold_constants<128>(), lane);
  const auto first = static_cast<uint64_t>(_mm_extract_epi64(lane, 0));
  const auto second = static_cast<uint64_t>(_mm_extract_epi64(lane, 1));
  return static_cast<uint32_t>(_mm_crc32_u64(_mm_crc32_u64(0, first), second));
}

constexpr size_t kRound = 256;  // bytes in flight

}  // namespace

FF_TARGET uint32_t crc32c_avx512_vpclmul(uint32_t crc, const unsigned char* data, size_t length) {
  if (length < kRound) return crc32c_sse42_pclmul(crc, data, length);
  __m512i a = _mm512_loadu_si512(data);
  __m512i b = _mm512_loadu_si512(data + 64);
  __m512i c = _mm512_loadu_si512(data + 128);
  __m512i d = _mm512_loadu_si512(data + 192);
  // The register counts as the first four bytes of the message.
  a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  data += kRound;
  length -= kRound;

  const __m512i round = _mm512_broadcast_i32x4(fold_constants<8 * kRound>());
  for (; length >= kRound; data += kRound, length -= kRound) {
    a = fold(a, round, _mm512_loadu_si512(data));
    b = fold(b, round, _mm512_loadu_si512(data + 64));
    c = fold(c, round, _mm512_loadu_si512(data + 128));
    d = fold(d, round, _mm512_loadu_si512(data + 192));
  }
  const __m512i next = _mm512_broadcast_i32x4(fold_constants<512>());
  a = fold(fold(fold(a, next, b), next, c), next, d);
  for (; length >= 64; data += 64, length -= 64) a = fold(a, next, _mm512_loadu_si512(data));
  return crc32c_sse42(reduce(a), data, length);
}

#undef FF_TARGET

}  // namespace ff::simd

// MD5 in lanes, compiled once for each instruction set: the unit sets FF_MD5_WIDTH, the most lanes
// of a vector (4, 8 or 16), with the pragma that selects the instructions before. Defines
// md5_lanes_of_unit().
//
// No more than the intrinsics, so that the linker mixes no functions of units
// (core/CMakeLists.txt).
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/simd/md5_paths.h"
#include "platform/simd/md5_rounds.h"

namespace ff::simd {
namespace {

template <size_t kLanes>
struct Md5Vector {
  typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
};

template <size_t kLanes>
using Md5Words = typename Md5Vector<kLanes>::Words;

#ifdef FF_MD5_AVX512
// The function of three bits that a truth table gives, in one instruction. The compiler makes one
// of each rotation by itself.
template <int kTable>
inline __attribute__((always_inline)) Md5Words<4> of_table(Md5Words<4> x, Md5Words<4> y,
                                                           Md5Words<4> z) {
  return (Md5Words<4>)_mm_ternarylogic_epi32((__m128i)x, (__m128i)y, (__m128i)z, kTable);
}
template <int kTable>
inline __attribute__((always_inline)) Md5Words<8> of_table(Md5Words<8> x, Md5Words<8> y,
                                                           Md5Words<8> z) {
  return (Md5Words<8>)_mm256_ternarylogic_epi32((__m256i)x, (__m256i)y, (__m256i)z, kTable);
}
template <int kTable>
inline __attribute__((always_inline)) Md5Words<16> of_table(Md5Words<16> x, Md5Words<16> y,
                                                            Md5Words<16> z) {
  return (Md5Words<16>)_mm512_ternarylogic_epi32((__m512i)x, (__m512i)y, (__m512i)z, kTable);
}
#endif

template <size_t kLanes>
struct Md5Ops {
  using V = Md5Words<kLanes>;
  static V all(uint32_t word) { return V{} + word; }
  template <int kBits>
  static V turn(V v) {
    return (v << kBits) | (v >> (32 - kBits));
  }
#ifdef FF_MD5_AVX512
  static V choose(V x, V y, V z) { return of_table<0xCA>(x, y, z); }
  static V parity(V x, V y, V z) { return of_table<0x96>(x, y, z); }
  static V last(V x, V y, V z) { return of_table<0x39>(x, y, z); }
#else
  static V choose(V x, V y, V z) { return z ^ (x & (y ^ z)); }
  static V parity(V x, V y, V z) { return x ^ y ^ z; }
  static V last(V x, V y, V z) { return y ^ (x | ~z); }
#endif
};

// Words 4 * `quarter` to 4 * `quarter` + 3 of the block of four lanes, by word.
inline __attribute__((always_inline)) void transpose(const unsigned char* const* data, size_t at,
                                                     __m128i (&words)[4]) {
  const __m128i a = _mm_loadu_si128((const __m128i*)(data[0] + at));
  const __m128i b = _mm_loadu_si128((const __m128i*)(data[1] + at));
  const __m128i c = _mm_loadu_si128((const __m128i*)(data[2] + at));
  const __m128i d = _mm_loadu_si128((const __m128i*)(data[3] + at));
  const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
  const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
  words[0] = _mm_unpacklo_epi64(ab_low, cd_low);
  words[1] = _mm_unpackhi_epi64(ab_low, cd_low);
  words[2] = _mm_unpacklo_epi64(ab_high, cd_high);
  words[3] = _mm_unpackhi_epi64(ab_high, cd_high);
}

// The 16 words of a block of all lanes. Vectors of more than four lanes go through memory.
template <size_t kLanes>
inline __attribute__((always_inline)) void load_block(const unsigned char* const* data,
                                                      Md5Words<kLanes> (&words)[16]) {
  alignas(64) __m128i parts[16][kLanes / 4];
  for (size_t quarter = 0; quarter < 4; quarter++) {
    for (size_t four = 0; four < kLanes / 4; four++) {
      __m128i got[4];
      transpose(data + 4 * four, 16 * quarter, got);
      for (size_t i = 0; i < 4; i++) parts[4 * quarter + i][four] = got[i];
    }
  }
  for (size_t i = 0; i < 16; i++) __builtin_memcpy(&words[i], parts[i], sizeof words[i]);
}

template <size_t kLanes>
void run_lanes(uint32_t* const* states, const unsigned char* const* data, size_t lanes,
               size_t blocks) {
  using V = Md5Words<kLanes>;
  const unsigned char* from[kLanes];
  V state[4];
  for (size_t lane = 0; lane < kLanes; lane++) {
    const size_t of = lane < lanes ? lane : 0;  // the others compute in vain
    from[lane] = data[of];
    for (size_t word = 0; word < 4; word++) state[word][lane] = states[of][word];
  }
  for (; blocks > 0; blocks--) {
    V words[16];
    load_block<kLanes>(from, words);
    md5_block<Md5Ops<kLanes>>(state, words);
    for (const unsigned char*& one : from) one += 64;
  }
  for (size_t lane = 0; lane < lanes; lane++) {
    for (size_t word = 0; word < 4; word++) states[lane][word] = state[word][lane];
  }
}

void md5_lanes_of_unit(uint32_t* const* states, const unsigned char* const* data, size_t lanes,
                       size_t blocks) {
#if FF_MD5_WIDTH >= 16
  if (lanes > 8) return run_lanes<16>(states, data, lanes, blocks);
#endif
#if FF_MD5_WIDTH >= 8
  if (lanes > 4) return run_lanes<8>(states, data, lanes, blocks);
#endif
  run_lanes<4>(states, data, lanes, blocks);
}

}  // namespace
}  // namespace ff::simd

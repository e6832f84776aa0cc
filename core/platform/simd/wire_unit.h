// The loops of one MXFP8 code path (format in wire.h), for the source that includes this, with the
// registers and the E4M3 type of reduce_unit.h. Two variants give the same bits: the general one
// encodes a single block with load and store of E4M3, for any values; the fast one encodes groups
// of blocks that hold no infinity, no NaN and no value near the limits of the float range.
//
// Magnitudes are compared as integers on the float bits. Scaling is exact except for results below
// 2^-126; those become zero in E4M3 anyway, because half of its smallest number is 2^-10.
#pragma once

#include "platform/simd/reduce_unit.h"
#include "platform/simd/wire_paths.h"

namespace ff::simd {
namespace {

constexpr size_t kMxBlock = 32;  // elements
constexpr size_t kMxRegisters = kMxBlock / FF_LANES;

inline I32 larger(I32 a, I32 b) { return a > b ? a : b; }

// Swaps each lane with the lane whose number differs in bit kBit.
template <int kBit>
inline I32 swapped(I32 of) {
#if FF_LANES == 16
  return __builtin_shufflevector(of, of, 0 ^ kBit, 1 ^ kBit, 2 ^ kBit, 3 ^ kBit, 4 ^ kBit, 5 ^ kBit,
                                 6 ^ kBit, 7 ^ kBit, 8 ^ kBit, 9 ^ kBit, 10 ^ kBit, 11 ^ kBit,
                                 12 ^ kBit, 13 ^ kBit, 14 ^ kBit, 15 ^ kBit);
#elif FF_LANES == 8
  return __builtin_shufflevector(of, of, 0 ^ kBit, 1 ^ kBit, 2 ^ kBit, 3 ^ kBit, 4 ^ kBit, 5 ^ kBit,
                                 6 ^ kBit, 7 ^ kBit);
#else
  return __builtin_shufflevector(of, of, 0 ^ kBit, 1 ^ kBit, 2 ^ kBit, 3 ^ kBit);
#endif
}

// The largest lane, in all lanes.
inline I32 largest(I32 of) {
#if FF_LANES >= 16
  of = larger(of, swapped<8>(of));
#endif
#if FF_LANES >= 8
  of = larger(of, swapped<4>(of));
#endif
  of = larger(of, swapped<2>(of));
  return larger(of, swapped<1>(of));
}

// Not inlined, to leave the registers to the loops of the fast variant.
__attribute__((noinline)) void encode_block(const char* from, char* elements, uint8_t* scale) {
  F32 values[kMxRegisters];
  I32 most = {};
#pragma GCC unroll 8
  for (size_t i = 0; i < kMxRegisters; i++) {
    values[i] = Float::load(from + i * sizeof(F32));
    const I32 magnitude = reinterpret_cast<I32>(bits_of(values[i]) & 0x7fffffffu);
    most = larger(most, magnitude & (magnitude < 0x7f800000));
  }
  const I32 amax = largest(most);
  // The exponent of amax, plus one if its mantissa exceeds 1.75, minus 8, the exponent of 448.
  const I32 fitting = ((amax + 0x1fffff) >> 23) - 8;
  const I32 biased = amax == 0 ? I32{} + 127 : larger(fitting, I32{});
  *scale = static_cast<uint8_t>(biased[0]);
  const F32 inverse = reinterpret_cast<F32>((254 - biased) << 23);
#pragma GCC unroll 8
  for (size_t i = 0; i < kMxRegisters; i++)
    E4m3::store(elements + i * FF_LANES, values[i] * inverse);
}

#if FF_BYTES == 64
#define FF_MM(name) _mm512_##name
typedef __m512i Native;
typedef __m512 NativeFloats;
#elif FF_BYTES == 32
#define FF_MM(name) _mm256_##name
typedef __m256i Native;
typedef __m256 NativeFloats;
#else
#define FF_MM(name) _mm_##name
typedef __m128i Native;
typedef __m128 NativeFloats;
#endif
typedef int32_t Four __attribute__((vector_size(16)));
typedef uint32_t FourBits __attribute__((vector_size(16)));
typedef uint16_t Words __attribute__((vector_size(FF_BYTES)));
template <class Vector>
inline Native native(Vector vector) {
  return reinterpret_cast<Native>(vector);
}

// The number of blocks whose largest magnitudes are computed together: the lanes of 128 bits.
constexpr size_t kMxGroup = 4;

// Reduces the 128-bit parts of a register to one by the lane-wise maximum.
inline Four folded(I32 of) {
#if FF_LANES == 16
  typedef int32_t Eight __attribute__((vector_size(32)));
  const Eight low = __builtin_shufflevector(of, of, 0, 1, 2, 3, 4, 5, 6, 7);
  const Eight high = __builtin_shufflevector(of, of, 8, 9, 10, 11, 12, 13, 14, 15);
  const Eight both = low > high ? low : high;
#else
  const I32 both = of;
#endif
#if FF_LANES >= 8
  const Four even = __builtin_shufflevector(both, both, 0, 1, 2, 3);
  const Four odd = __builtin_shufflevector(both, both, 4, 5, 6, 7);
  return even > odd ? even : odd;
#else
  return both;
#endif
}

inline I32 larger_of_blocks(const char* from, size_t block) {
  const char* const first = from + block * kMxBlock * sizeof(float);
  I32 most = reinterpret_cast<I32>(load_raw<U32>(first) & 0x7fffffffu);
#pragma GCC unroll 8
  for (size_t i = 1; i < kMxRegisters; i++) {
    const U32 magnitude = load_raw<U32>(first + i * FF_BYTES) & 0x7fffffffu;
    most = larger(most, reinterpret_cast<I32>(magnitude));
  }
  return most;
}

#if FF_BYTES == 64
// GCC 12 warns in its own header about the unmasked intrinsics.
#define FF_UNPACK(name, lanes, a, b) \
  reinterpret_cast<I32>(_mm512_maskz_##name(lanes, native(a), native(b)))
#else
#define FF_UNPACK(name, lanes, a, b) reinterpret_cast<I32>(FF_MM(name)(native(a), native(b)))
#endif

// The largest magnitude of each block of a group: a transposition that keeps the larger of two
// lanes at each step.
inline Four largest_of_group(const char* from) {
  const I32 a = larger_of_blocks(from, 0), b = larger_of_blocks(from, 1);
  const I32 c = larger_of_blocks(from, 2), d = larger_of_blocks(from, 3);
  const I32 ab =
      larger(FF_UNPACK(unpacklo_epi32, 0xffff, a, b), FF_UNPACK(unpackhi_epi32, 0xffff, a, b));
  const I32 cd =
      larger(FF_UNPACK(unpacklo_epi32, 0xffff, c, d), FF_UNPACK(unpackhi_epi32, 0xffff, c, d));
  return folded(
      larger(FF_UNPACK(unpacklo_epi64, 0xff, ab, cd), FF_UNPACK(unpackhi_epi64, 0xff, ab, cd)));
}

// Rounds to E4M3. Input: floats that are 8 times the values, at most 8 times 448. Output: in the
// lower 15 bits of each lane 16 * (code + 1152), and the sign where saturating packing keeps it.
// Method: add a power of two with the sign of the float, whose last mantissa bit is an eighth of
// the power of two of the float (at least 1/8). The exponent of the sum (at least 144) and its last
// bits, the number of eighths, give the code: 8 * exponent + eighths = code + 8 * 144, and 8 * 144
// is a multiple of 128.
inline Native counted(F32 value) {
#if FF_BYTES == 64
  const __m512 sized = _mm512_maskz_range_ps(kAll, reinterpret_cast<__m512>(value),
                                             reinterpret_cast<__m512>(splat(124u << 23)), 3);
  const U32 power = reinterpret_cast<U32>(sized) & 0xff800000u;
#else
  const U32 exponent = bits_of(value) & 0x7f800000u;
  const U32 sized = reinterpret_cast<U32>(FF_MM(max_ps)(
      reinterpret_cast<NativeFloats>(exponent), reinterpret_cast<NativeFloats>(splat(124u << 23))));
  const U32 power = sized | (bits_of(value) & 0x80000000u);
#endif
  const F32 sum = value + as_float(power + (20u << 23));
  const U32 weights = U32{} + 0x00010010u;  // upper half + 16 * lower half
  return FF_MM(madd_epi16)(native(sum), native(weights));
}

// Packs two registers of counted() into E4M3 codes in 16 bits each.
inline Native packed(Native a, Native b) {
  const Words both = reinterpret_cast<Words>(FF_MM(packs_epi32)(a, b));
  const Words moved = both << 4;
  return native((moved ^ ((moved ^ both) & 0x8000)) >> 8);
}

// Packs two registers of E4M3 codes to bytes and stores them; packing interleaves the 128-bit
// parts.
inline void store_packed(char* to, Native a, Native b) {
  const I32 bytes = reinterpret_cast<I32>(FF_MM(packus_epi16)(a, b));
#if FF_LANES == 16
  store_raw(to, __builtin_shufflevector(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7,
                                        11, 15));
#elif FF_LANES == 8
  store_raw(to, __builtin_shufflevector(bytes, bytes, 0, 4, 1, 5, 2, 6, 3, 7));
#else
  store_raw(to, bytes);
#endif
}

// Computes the scales of a group and, in `factors`, 8 / scale. A result lane is nonzero if its
// block needs the general variant.
inline Four measure_group(const char* from, uint8_t* scales, float* factors) {
  const Four amax = largest_of_group(from);
  const FourBits sum = reinterpret_cast<FourBits>(amax) + 0x1fffff;  // see encode_block()
  const Four biased = amax == 0 ? Four{} + 127 : (reinterpret_cast<Four>(sum) >> 23) - 8;
  const FourBits inverse = (254 + 3 - reinterpret_cast<FourBits>(biased)) << 23;
  memcpy(factors, &inverse, kMxGroup * sizeof(float));
  const __m128i words = _mm_packs_epi32(reinterpret_cast<__m128i>(biased), __m128i{});
  const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
  memcpy(scales, &bytes, kMxGroup);
  // Infinities and NaN give more than 246 or, after integer overflow, less than 0.
  return (biased < 3) | (biased > 246);
}

inline void encode_group(const char* from, const float* factors, char* elements) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kMxGroup * kMxRegisters; i += 4) {
    Native codes[4];
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
      const F32 value = load_raw<F32>(from + (i + k) * FF_BYTES);
      codes[k] = counted(value * factors[(i + k) / kMxRegisters]);
    }
    store_packed(elements + i * FF_LANES, packed(codes[0], codes[1]), packed(codes[2], codes[3]));
  }
}

// The number of blocks that are measured before the first one is encoded, so that the latencies of
// both steps overlap; their floats stay in the L1 cache.
constexpr size_t kMxRun = 32;

inline void encode_run(const char* from, size_t blocks, char* elements, uint8_t* scales) {
  constexpr size_t kBytes = kMxBlock * sizeof(float);
  float factors[kMxRun];
  Four rare = {};
  for (size_t i = 0; i < blocks; i += kMxGroup) {
    rare |= measure_group(from + i * kBytes, scales + i, factors + i);
  }
  if (_mm_movemask_epi8(reinterpret_cast<__m128i>(rare)) != 0) {
    for (size_t i = 0; i < blocks; i++) {
      encode_block(from + i * kBytes, elements + i * kMxBlock, scales + i);
    }
    return;
  }
  for (size_t i = 0; i < blocks; i += kMxGroup) {
    encode_group(from + i * kBytes, factors + i, elements + i * kMxBlock);
  }
}

__attribute__((noinline)) void decode_block(const char* elements, uint8_t scale, char* into) {
  // 2^-127 is a subnormal float.
  const uint32_t bits = scale == 0xff ? 0x7fc00000u : scale == 0 ? 0x00400000u : scale << 23;
  const F32 factor = splat(bits);
#pragma GCC unroll 8
  for (size_t i = 0; i < kMxRegisters; i++) {
    Float::store(into + i * sizeof(F32), E4m3::load(elements + i * FF_LANES) * factor);
  }
}

// Decodes FF_LANES E4M3 numbers, none NaN, times 2^-8: through half floats, or through bfloat16
// built with integer operations.
#if FF_BYTES == 16
// Widens four of eight bfloat16 numbers to floats.
template <bool kUpper>
inline F32 widened(Words words) {
  const __m128i zero = {};
  return reinterpret_cast<F32>(kUpper ? _mm_unpackhi_epi16(zero, native(words))
                                      : _mm_unpacklo_epi16(zero, native(words)));
}
template <bool kUpper>
inline U32 value_of(Words number, Words less, Words sign, F32 factor) {
  const F32 value = (widened<kUpper>(number) - widened<kUpper>(less)) * factor;
  return bits_of(value) | bits_of(widened<kUpper>(sign));
}
inline void decode_numbers(const char* elements, F32 factor, char* into) {
  const __m128i zero = {};
  for (size_t i = 0; i < kMxBlock; i += 8) {
    const __m128i raw = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(elements + i));
    const Words above = reinterpret_cast<Words>(_mm_unpacklo_epi8(zero, raw));  // << 8
    const Words sign = above & 0x8000;
    const Words magnitude = (above & 0x7f00) >> 4;
    const Words small = reinterpret_cast<Words>(magnitude < 0x80);
    // Like Narrow::load, in the upper half of a float.
    const Words number = magnitude + (112 << 7) + (small & 0x80);
    const Words less = small & (113 << 7);
    store_raw(into + i * sizeof(float), value_of<false>(number, less, sign, factor));
    store_raw(into + (i + 4) * sizeof(float), value_of<true>(number, less, sign, factor));
  }
}
#else
inline void decode_numbers(const char* elements, F32 factor, char* into) {
  typedef int16_t Signed __attribute__((vector_size(FF_LANES * 2)));
  typedef int8_t SignedQuarters __attribute__((vector_size(FF_LANES)));
#pragma GCC unroll 8
  for (size_t i = 0; i < kMxRegisters; i++) {
    const auto raw = load_raw<SignedQuarters>(elements + i * FF_LANES);
    const Signed moved = __builtin_convertvector(raw, Signed) << 7;
    store_raw(into + i * FF_BYTES, widened(reinterpret_cast<Halves>(moved) & 0xbf80) * factor);
  }
}
#endif

inline bool has_nan(const char* elements) {
  typedef uint8_t Sixteen __attribute__((vector_size(16)));
  const Sixteen a = load_raw<Sixteen>(elements) | 0x80;
  const Sixteen b = load_raw<Sixteen>(elements + 16) | 0x80;
  const Sixteen nan = reinterpret_cast<Sixteen>((a == 0xff) | (b == 0xff));
  return _mm_movemask_epi8(reinterpret_cast<__m128i>(nan)) != 0;
}

inline void decode_either(const char* elements, uint8_t scale, char* into) {
  if (scale > 246 || has_nan(elements)) {
    decode_block(elements, scale, into);
  } else {
    decode_numbers(elements, splat((scale + 8u) << 23), into);
  }
}

void encode_mx(const float* from, size_t count, uint8_t* elements, uint8_t* scales) {
  const char* const floats = reinterpret_cast<const char*>(from);
  char* const codes = reinterpret_cast<char*>(elements);
  size_t at = 0;
  constexpr size_t kGroup = kMxGroup * kMxBlock;
  while (at + kGroup <= count) {
    const size_t left = (count - at) / kGroup * kMxGroup;
    const size_t blocks = left < kMxRun ? left : kMxRun;
    encode_run(floats + at * sizeof(float), blocks, codes + at, scales + at / kMxBlock);
    at += blocks * kMxBlock;
  }
  for (; at + kMxBlock <= count; at += kMxBlock) {
    encode_block(floats + at * sizeof(float), codes + at, scales + at / kMxBlock);
  }
  if (at == count) return;
  char padded[kMxBlock * sizeof(float)] = {}, made[kMxBlock];
  memcpy(padded, floats + at * sizeof(float), (count - at) * sizeof(float));
  encode_block(padded, made, scales + at / kMxBlock);
  memcpy(codes + at, made, count - at);
}

void decode_mx(const uint8_t* elements, const uint8_t* scales, size_t count, float* into) {
  const char* const codes = reinterpret_cast<const char*>(elements);
  char* const floats = reinterpret_cast<char*>(into);
  size_t at = 0;
  for (; at + kMxBlock <= count; at += kMxBlock) {
    decode_either(codes + at, scales[at / kMxBlock], floats + at * sizeof(float));
  }
  if (at == count) return;
  char padded[kMxBlock] = {}, made[kMxBlock * sizeof(float)];
  memcpy(padded, codes + at, count - at);
  decode_block(padded, scales[at / kMxBlock], made);
  memcpy(floats + at * sizeof(float), made, (count - at) * sizeof(float));
}

}  // namespace
}  // namespace ff::simd

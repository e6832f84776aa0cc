// The loops of one reduction code path, for the source that includes this: FF_LANES 32-bit elements
// in a register of FF_BYTES bytes. It uses GCC's vector extensions
// (https://gcc.gnu.org/onlinedocs/gcc/Vector-Extensions.html), so that one source serves all
// widths.
//
// The loop loads a block of kVectors registers from the first input and combines the blocks of the
// other inputs into it, so every input is read once and the output is written once. All names have
// internal linkage: nothing may be shared with sources compiled for other CPUs.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "platform/simd/reduce_paths.h"

namespace ff::simd {
namespace {

// Register types. The narrow ones are only loaded and stored.
typedef float F32 __attribute__((vector_size(FF_LANES * 4)));
typedef uint32_t U32 __attribute__((vector_size(FF_LANES * 4)));
typedef int32_t I32 __attribute__((vector_size(FF_LANES * 4)));
typedef double F64 __attribute__((vector_size(FF_LANES * 4)));
typedef uint64_t U64 __attribute__((vector_size(FF_LANES * 4)));
typedef int64_t I64 __attribute__((vector_size(FF_LANES * 4)));
typedef uint8_t U8 __attribute__((vector_size(FF_LANES * 4)));
typedef uint16_t Halves __attribute__((vector_size(FF_LANES * 2)));
typedef uint8_t Quarters __attribute__((vector_size(FF_LANES)));

template <class Vector>
inline Vector load_raw(const char* from) {
  typedef Vector Loose __attribute__((aligned(1), may_alias));
  return *reinterpret_cast<const Loose*>(from);
}
template <class Vector>
inline void store_raw(char* to, Vector vector) {
  typedef Vector Loose __attribute__((aligned(1), may_alias));
  *reinterpret_cast<Loose*>(to) = vector;
}

inline F32 splat(uint32_t bits) {
  const U32 all = bits - U32{};
  return reinterpret_cast<F32>(all);
}
inline U32 bits_of(F32 value) { return reinterpret_cast<U32>(value); }
inline F32 as_float(U32 bits) { return reinterpret_cast<F32>(bits); }
inline U32 mask_of(I32 mask) { return reinterpret_cast<U32>(mask); }
inline I32 is_nan(F32 value) { return value != value; }

// Element types: each defines how to load, store and divide a register of its accumulation type.
struct Float {
  typedef F32 Wide;
  typedef F32 Compared;
  static constexpr size_t kBytes = 4, kLanes = FF_LANES;
  static inline Wide load(const char* from) { return load_raw<F32>(from); }
  static inline void store(char* to, Wide value) {
    store_raw(to, is_nan(value) ? splat(0x7fc00000) : value);
  }
  static inline Wide divide(Wide value, uint32_t by) { return value / static_cast<float>(by); }
};

struct Double {
  typedef F64 Wide;
  typedef F64 Compared;
  static constexpr size_t kBytes = 8, kLanes = FF_LANES / 2;
  static inline Wide load(const char* from) { return load_raw<F64>(from); }
  static inline void store(char* to, Wide value) {
    const U64 quiet = 0x7ff8000000000000 - U64{};
    store_raw(to, value != value ? reinterpret_cast<F64>(quiet) : value);
  }
  static inline Wide divide(Wide value, uint32_t by) { return value / static_cast<double>(by); }
};

struct Bfloat16 {
  typedef F32 Wide;
  typedef F32 Compared;
  static constexpr size_t kBytes = 2, kLanes = FF_LANES;
  static inline Wide load(const char* from) {
    return as_float(__builtin_convertvector(load_raw<Halves>(from), U32) << 16);
  }
  static inline void store(char* to, Wide value) {
    const U32 bits = bits_of(value);
    const U32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const U32 result = is_nan(value) ? U32{} + 0x7fc0 : rounded;
    store_raw(to, __builtin_convertvector(result, Halves));
  }
  static inline Wide divide(Wide value, uint32_t by) { return Float::divide(value, by); }
};

// A narrow float in a Raw: one sign bit, exponents with bias kBias, kMantissa mantissa bits.
// Subnormal results are rounded by float addition: adding a power of two whose last mantissa bit
// equals the smallest subnormal.
template <class Raw, int kWidth, int kMantissa, int kBias, bool kHasInfinity>
struct Narrow {
  typedef F32 Wide;
  typedef F32 Compared;
  static constexpr size_t kBytes = kWidth / 8, kLanes = FF_LANES;
  static constexpr uint32_t kSign = 1u << (kWidth - 1);
  static constexpr uint32_t kMagnitude = kSign - 1;
  static constexpr uint32_t kShift = 23 - kMantissa;
  static constexpr uint32_t kRebias = 127 - kBias;
  // The bits of infinity, or of NaN if the type has no infinity.
  static constexpr uint32_t kTop = kHasInfinity ? kMagnitude >> kMantissa << kMantissa : kMagnitude;
  static constexpr uint32_t kQuiet = kHasInfinity ? kTop | 1u << (kMantissa - 1) : kTop;
  // As float bits: the smallest normal number, and the number whose last mantissa bit equals the
  // smallest subnormal.
  static constexpr uint32_t kSmallest = (kRebias + 1) << 23;
  static constexpr uint32_t kCounter = (kRebias + 1 - kMantissa + 23) << 23;

  static inline Wide load(const char* from) {
    const U32 raw = __builtin_convertvector(load_raw<Raw>(from), U32);
    const U32 magnitude = raw & kMagnitude;
    const I32 order = reinterpret_cast<I32>(magnitude);
    // Subnormals: use an exponent one too high and subtract that power of two again.
    const U32 small = mask_of(order < (1 << kMantissa));
    U32 bits = (magnitude << kShift) + (kRebias << 23) + (small & (1u << 23));
    if (kHasInfinity) {
      bits += mask_of(order >= static_cast<int32_t>(kTop)) & (kRebias << 23);
    } else {
      bits |= mask_of(order == static_cast<int32_t>(kTop)) & 0x7fc00000u;
    }
    const F32 value = as_float(bits) - as_float(small & kSmallest);
    return as_float(bits_of(value) | (raw & kSign) << (32 - kWidth));
  }

  static inline void store(char* to, Wide value) {
    const U32 bits = bits_of(value);
    const U32 magnitude = bits & 0x7fffffffu;
    const I32 order = reinterpret_cast<I32>(magnitude);
    const U32 half = (1u << (kShift - 1)) - 1 - U32{};
    const U32 rounded =
        ((magnitude + half + (magnitude >> kShift & 1)) >> kShift) - (kRebias << kMantissa);
    const U32 counted = bits_of(as_float(magnitude) + splat(kCounter)) - kCounter;
    U32 result = order < static_cast<int32_t>(kSmallest) ? counted : rounded;
    const I32 past = reinterpret_cast<I32>(result) >= static_cast<int32_t>(kTop);
    const I32 nan = kHasInfinity ? order > 0x7f800000 : past;
    result = (past ? U32{} + kTop : result) | (bits >> (32 - kWidth) & kSign);
    result = nan ? U32{} + kQuiet : result;
    store_raw(to, __builtin_convertvector(result, Raw));
  }
  static inline Wide divide(Wide value, uint32_t by) { return Float::divide(value, by); }
};
typedef Narrow<Quarters, 8, 3, 7, false> PlainE4m3;
typedef Narrow<Quarters, 8, 2, 15, true> PlainE5m2;
typedef Narrow<Halves, 16, 10, 15, true> PlainHalf;

#if FF_BYTES == 16
typedef PlainHalf Half;
typedef PlainE5m2 E5m2;
typedef PlainE4m3 E4m3;
#else
// Uses the half-float conversions of F16C, whose speed does not depend on the value.
#if FF_BYTES == 64
constexpr __mmask16 kAll = 0xffff;  // GCC 12 warns in its own header about the unmasked intrinsics
#endif
inline F32 widened(Halves raw) {
#if FF_BYTES == 64
  return reinterpret_cast<F32>(_mm512_maskz_cvtph_ps(kAll, reinterpret_cast<__m256i>(raw)));
#else
  return reinterpret_cast<F32>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(raw)));
#endif
}
struct Half : PlainHalf {
  static inline Wide load(const char* from) { return widened(load_raw<Halves>(from)); }
  static inline void store(char* to, Wide value) {
    const F32 number = is_nan(value) ? splat(0x7fc00000) : value;
#if FF_BYTES == 64
    store_raw(to, _mm512_maskz_cvtps_ph(kAll, reinterpret_cast<__m512>(number),
                                        _MM_FROUND_TO_NEAREST_INT));
#else
    store_raw(to, _mm256_cvtps_ph(reinterpret_cast<__m256>(number), _MM_FROUND_TO_NEAREST_INT));
#endif
  }
};
// E5M2 is the upper half of a half float.
struct E5m2 : PlainE5m2 {
  static inline Wide load(const char* from) {
    return widened(__builtin_convertvector(load_raw<Quarters>(from), Halves) << 8);
  }
};
// Converts to a half float whose exponent is 8 too low; NaN becomes the NaN of half by a carry into
// the top exponent bit.
struct E4m3 : PlainE4m3 {
  static inline Wide load(const char* from) {
    const Signed raw = __builtin_convertvector(load_raw<SignedQuarters>(from), Signed);
    const Halves moved = reinterpret_cast<Halves>(raw << 7) & 0xbf80;
    return widened(moved | ((moved + 0x80) & 0x4000)) * 256.0F;
  }

 private:
  typedef int16_t Signed __attribute__((vector_size(FF_LANES * 2)));
  typedef int8_t SignedQuarters __attribute__((vector_size(FF_LANES)));
};
#endif

// Integers: sums and products use `Unsigned`, which wraps around; `Signed` is compared and divided.
template <class Unsigned, class Signed, size_t kSize>
struct Integer {
  typedef Unsigned Wide;
  typedef Signed Compared;
  static constexpr size_t kBytes = kSize, kLanes = FF_BYTES / kSize;
  static inline Wide load(const char* from) { return load_raw<Unsigned>(from); }
  static inline void store(char* to, Wide value) { store_raw(to, value); }
  static inline Wide divide(Wide value, uint32_t by) {
    Signed parts = reinterpret_cast<Signed>(value);
    for (size_t lane = 0; lane < kLanes; lane++) {
      parts[lane] = static_cast<decltype(+parts[0])>(parts[lane] / static_cast<int64_t>(by));
    }
    return reinterpret_cast<Wide>(parts);
  }
};
typedef Integer<U32, I32, 4> Int32;
typedef Integer<U64, I64, 8> Int64;
typedef Integer<U8, U8, 1> Uint8;

enum { kSum, kProd, kMax, kMin };  // as ReduceOp numbers them

template <class Element, int kOp>
inline typename Element::Wide combine(typename Element::Wide a, typename Element::Wide b) {
  typedef typename Element::Compared Compared;
  const Compared x = reinterpret_cast<Compared>(a), y = reinterpret_cast<Compared>(b);
  if (kOp == kSum) return a + b;
  if (kOp == kProd) return a * b;
  if (kOp == kMax) return ((y > x) | (y != y)) ? b : a;  // a NaN in `a` stays
  return ((y < x) | (y != y)) ? b : a;
}

// Copies `bytes` (a multiple of FF_BYTES) to an aligned address with non-temporal stores.
inline void stream(const char* from, char* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += FF_BYTES) {
#if FF_BYTES == 64
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_load_si512(from + at));
#elif FF_BYTES == 32
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at),
                        _mm256_load_si256(reinterpret_cast<const __m256i*>(from + at)));
#else
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + at)));
#endif
  }
}

constexpr size_t kVectors = FF_VECTORS;
constexpr size_t kLine = 64;     // bytes of a cache line
constexpr size_t kAhead = 1024;  // prefetch distance in bytes

template <class From, class To, int kOp>
struct ReduceLoop {
  typedef typename From::Wide Wide;
  static constexpr size_t kBlock = kVectors * From::kLanes;  // elements
  static constexpr size_t kFromBytes = From::kLanes * From::kBytes;
  static constexpr size_t kToBytes = To::kLanes * To::kBytes;
  static constexpr size_t kStage = 4096 / (kBlock * To::kBytes) + 1;  // blocks

  // The address of element `at` of an input. A partial block is copied and padded with zeros, so
  // that nothing beyond the input is read.
  template <bool kWhole>
  static inline const char* input(const ReduceCall& call, size_t number, size_t at, size_t count,
                                  char* copy) {
    const char* from = static_cast<const char*>(call.inputs[number]) + at * From::kBytes;
    if (kWhole) return from;
    memset(copy, 0, kBlock * From::kBytes);
    memcpy(copy, from, count * From::kBytes);
    return copy;
  }

  // Prefetches the data kAhead bytes further on. The hardware prefetcher stops at page ends and
  // tracks only a few streams.
  template <bool kPrefetch>
  static inline const char* prefetch(const char* from) {
    for (size_t at = 0; kPrefetch && at < kBlock * From::kBytes; at += kLine) {
      __builtin_prefetch(from + kAhead + at);
    }
    return from;
  }

  template <bool kWhole, bool kPrefetch = false>
  static inline void block(const ReduceCall& call, size_t at, size_t count, char* to) {
    char copy[kWhole ? 1 : kBlock * From::kBytes];
    Wide sums[kVectors];
    const char* const first = prefetch<kPrefetch>(input<kWhole>(call, 0, at, count, copy));
#pragma GCC unroll 16
    for (size_t i = 0; i < kVectors; i++) sums[i] = From::load(first + i * kFromBytes);
    for (size_t number = 1; number < call.inputs_count; number++) {
      const char* const from = prefetch<kPrefetch>(input<kWhole>(call, number, at, count, copy));
#pragma GCC unroll 16
      for (size_t i = 0; i < kVectors; i++) {
        sums[i] = combine<From, kOp>(sums[i], From::load(from + i * kFromBytes));
      }
    }
    if (call.divisor > 0) {
      for (size_t i = 0; i < kVectors; i++) sums[i] = To::divide(sums[i], call.divisor);
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kVectors; i++) To::store(to + i * kToBytes, sums[i]);
  }

  static inline char* output(const ReduceCall& call, size_t number, size_t at) {
    return static_cast<char*>(call.outputs[number]) + at * To::kBytes;
  }

  static void partial_block(const ReduceCall& call, size_t at, size_t count) {
    char whole[kBlock * To::kBytes];
    block<false>(call, at, count, whole);
    for (size_t i = 0; i < call.outputs_count; i++) {
      memcpy(output(call, i, at), whole, count * To::kBytes);
    }
  }

  // The number of elements before the first one at which all outputs are aligned; SIZE_MAX if there
  // is none.
  static size_t before_aligned(const ReduceCall& call) {
    const size_t past = reinterpret_cast<uintptr_t>(call.outputs[0]) % FF_BYTES;
    for (size_t i = 1; i < call.outputs_count; i++) {
      if (reinterpret_cast<uintptr_t>(call.outputs[i]) % FF_BYTES != past) return SIZE_MAX;
    }
    const size_t missing = (FF_BYTES - past) % FF_BYTES;
    return missing % To::kBytes == 0 ? missing / To::kBytes : SIZE_MAX;
  }

  static void run(const ReduceCall& call) {
    const size_t before = call.non_temporal != 0 ? before_aligned(call) : SIZE_MAX;
    const bool streams = before != SIZE_MAX;
    size_t at = 0;
    for (const size_t end = streams && before < call.count ? before : 0; at < end;) {
      const size_t some = end - at < kBlock ? end - at : kBlock;
      partial_block(call, at, some);
      at += some;
    }
    const bool at_once = !streams && call.outputs_count == 1;
    for (; at_once && at + kBlock <= call.count; at += kBlock) {
      block<true>(call, at, kBlock, output(call, 0, at));
    }
    // Collect some blocks in the L1 cache and write them to each output: memory prefers long runs.
    alignas(FF_BYTES) char made[kStage * kBlock * To::kBytes];
    while (at + kBlock <= call.count) {
      size_t bytes = 0;
      const size_t first = at;
      for (; bytes < sizeof made && at + kBlock <= call.count; at += kBlock) {
        streams ? block<true, true>(call, at, kBlock, made + bytes)
                : block<true>(call, at, kBlock, made + bytes);
        bytes += kBlock * To::kBytes;
      }
      for (size_t i = 0; i < call.outputs_count; i++) {
        if (streams) {
          stream(made, output(call, i, first), bytes);
        } else {
          memcpy(output(call, i, first), made, bytes);
        }
      }
    }
    if (at < call.count) partial_block(call, at, call.count - at);
    if (streams) _mm_sfence();
  }
};

#define FF_FORM(From, To)                                                \
  {                                                                      \
    ReduceLoop<From, To, kSum>::run, ReduceLoop<From, To, kProd>::run,   \
        ReduceLoop<From, To, kMax>::run, ReduceLoop<From, To, kMin>::run \
  }
#define FF_TABLE                                                                      \
  {                                                                                   \
    {                                                                                 \
      {FF_FORM(Float, Float),       FF_FORM(Double, Double), FF_FORM(Half, Half),     \
       FF_FORM(Bfloat16, Bfloat16), FF_FORM(E4m3, E4m3),     FF_FORM(E5m2, E5m2),     \
       FF_FORM(Int32, Int32),       FF_FORM(Int64, Int64),   FF_FORM(Uint8, Uint8)},  \
          {FF_FORM(Float, Float),    FF_FORM(Double, Double), FF_FORM(Half, Float),   \
           FF_FORM(Bfloat16, Float), FF_FORM(E4m3, Float),    FF_FORM(E5m2, Float),   \
           FF_FORM(Int32, Int32),    FF_FORM(Int64, Int64),   FF_FORM(Uint8, Uint8)}, \
          {FF_FORM(Float, Float),    FF_FORM(Double, Double), FF_FORM(Float, Half),   \
           FF_FORM(Float, Bfloat16), FF_FORM(Float, E4m3),    FF_FORM(Float, E5m2),   \
           FF_FORM(Int32, Int32),    FF_FORM(Int64, Int64),   FF_FORM(Uint8, Uint8)}, \
    }                                                                                 \
  }

}  // namespace
}  // namespace ff::simd

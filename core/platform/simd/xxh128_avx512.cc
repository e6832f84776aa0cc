// xxh128_avx512.cc: XXH3-128 with AVX-512. See xxh128_unit.h.

// GCC 12 takes the deliberately undefined operands inside its own intrinsics for mistakes (bug
// 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f")
#define XXH_VECTOR 3
#include "platform/simd/xxh128_unit.h"

namespace ff::simd {

const Xxh128Functions kXxh128Avx512 = {one_shot, reset, update, digest_of};

}  // namespace ff::simd

// xxh128_avx2.cc: XXH3-128 with AVX2. See xxh128_unit.h.
#pragma GCC target("avx2")
#define XXH_VECTOR 2
#include "platform/simd/xxh128_unit.h"

namespace ff::simd {

const Xxh128Functions kXxh128Avx2 = {one_shot, reset, update, digest_of};

}  // namespace ff::simd

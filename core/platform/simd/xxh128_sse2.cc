// xxh128_sse2.cc: XXH3-128 for every x86-64 CPU. See xxh128_unit.h.
#define XXH_VECTOR 1
#include "platform/simd/xxh128_unit.h"

namespace ff::simd {

const Xxh128Functions kXxh128Sse2 = {one_shot, reset, update, digest_of};

}  // namespace ff::simd

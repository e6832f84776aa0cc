// reduce_avx2.cc: reductions with AVX2 and F16C. See reduce_unit.h.
#pragma GCC target("avx2,f16c")
#define FF_LANES 8
#define FF_BYTES 32
#define FF_VECTORS 8
#include "platform/simd/reduce_unit.h"

namespace ff::simd {

const ReduceFunctions kReduceAvx2 = FF_TABLE;

}  // namespace ff::simd

// reduce_avx512.cc: reductions with AVX-512 (F, BW, VL, DQ). See reduce_unit.h.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#define FF_LANES 16
#define FF_BYTES 64
#define FF_VECTORS 8
#include "platform/simd/reduce_unit.h"

namespace ff::simd {

const ReduceFunctions kReduceAvx512 = FF_TABLE;

}  // namespace ff::simd

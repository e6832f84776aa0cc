// gemm_avx2.cc: products of matrices with AVX2. See gemm_unit.h.
#pragma GCC target("avx2,fma")
#define FF_LANES 8
#define FF_ROWS 6
#define FF_WIDE 2
#include "platform/simd/gemm_unit.h"

namespace ff::simd {

const GemmFunctions kGemmAvx2 = {kRows, kColumns, pack_a, pack_b, tile};

}  // namespace ff::simd

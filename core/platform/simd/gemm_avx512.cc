// gemm_avx512.cc: products of matrices with AVX512. See gemm_unit.h.
#pragma GCC target("avx512f")
#define FF_LANES 16
#define FF_ROWS 12
#define FF_WIDE 2
#include "platform/simd/gemm_unit.h"

namespace ff::simd {

const GemmFunctions kGemmAvx512 = {kRows, kColumns, pack_a, pack_b, tile};

}  // namespace ff::simd

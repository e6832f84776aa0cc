// gemm_sse2.cc: products of matrices with SSE2. See gemm_unit.h.
#define FF_LANES 4
#define FF_ROWS 6
#define FF_WIDE 2
#include "platform/simd/gemm_unit.h"

namespace ff::simd {

const GemmFunctions kGemmSse2 = {kRows, kColumns, pack_a, pack_b, tile};

}  // namespace ff::simd

// wire_avx512.cc: MXFP8 with AVX-512 (F, BW, VL, DQ). See wire_unit.h.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#define FF_LANES 16
#define FF_BYTES 64
#define FF_VECTORS 8
#include "platform/simd/wire_unit.h"

namespace ff::simd {

const WireFunctions kWireAvx512 = {encode_mx, decode_mx};

}  // namespace ff::simd

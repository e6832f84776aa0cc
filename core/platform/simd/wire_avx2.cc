// wire_avx2.cc: MXFP8 with AVX2 and F16C. See wire_unit.h.
#pragma GCC target("avx2,f16c")
#define FF_LANES 8
#define FF_BYTES 32
#define FF_VECTORS 8
#include "platform/simd/wire_unit.h"

namespace ff::simd {

const WireFunctions kWireAvx2 = {encode_mx, decode_mx};

}  // namespace ff::simd

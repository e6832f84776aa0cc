// wire_sse2.cc: MXFP8 with what every x86-64 has. See wire_unit.h.
#define FF_LANES 4
#define FF_BYTES 16
#define FF_VECTORS 4
#include "platform/simd/wire_unit.h"

namespace ff::simd {

const WireFunctions kWireSse2 = {encode_mx, decode_mx};

}  // namespace ff::simd

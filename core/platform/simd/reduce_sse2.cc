// reduce_sse2.cc: reductions with what every x86-64 has. See reduce_unit.h.
#define FF_LANES 4
#define FF_BYTES 16
#define FF_VECTORS 4
#include "platform/simd/reduce_unit.h"

namespace ff::simd {

const ReduceFunctions kReduceSse2 = FF_TABLE;

}  // namespace ff::simd

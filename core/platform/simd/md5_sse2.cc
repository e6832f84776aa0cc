// md5_sse2.cc: MD5 in up to 4 lanes with what every x86-64 has. See md5_unit.h.
#define FF_MD5_WIDTH 4
#include "platform/simd/md5_unit.h"

namespace ff::simd {

const Md5Blocks kMd5Sse2 = md5_lanes_of_unit;

}  // namespace ff::simd

// md5_avx2.cc: MD5 in up to 8 lanes with AVX2. See md5_unit.h.
#pragma GCC target("avx2")
#define FF_MD5_WIDTH 8
#include "platform/simd/md5_unit.h"

namespace ff::simd {

const Md5Blocks kMd5Avx2 = md5_lanes_of_unit;

}  // namespace ff::simd

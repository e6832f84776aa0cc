// md5_avx512.cc: MD5 in up to 16 lanes with AVX-512 (F, VL). See md5_unit.h.
#pragma GCC target("avx512f,avx512vl")
#define FF_MD5_WIDTH 16
#define FF_MD5_AVX512
#include "platform/simd/md5_unit.h"

namespace ff::simd {

const Md5Blocks kMd5Avx512 = md5_lanes_of_unit;

}  // namespace ff::simd

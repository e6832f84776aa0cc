// The code paths of MD5 in lanes, for md5.cc and the tests only. Each has the same loops, compiled
// for one instruction set (md5_unit.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ff::simd {

// Adds `blocks` blocks of 64 bytes to each of `lanes` states of four words. Lanes above `lanes` of
// both arrays are not read. `lanes` is from 1 to the `lanes_max` of the path.
using Md5Blocks = void (*)(uint32_t* const* states, const unsigned char* const* data, size_t lanes,
                           size_t blocks);

extern const Md5Blocks kMd5Avx512;
extern const Md5Blocks kMd5Avx2;
extern const Md5Blocks kMd5Sse2;

constexpr size_t kMd5LanesMax = 16;

struct Md5Path {
  const char* name;
  bool (*supported)();  // by this CPU
  Md5Blocks run;
  size_t lanes_min;  // md5_blocks() is faster for fewer
  size_t lanes_max;
};

// Fastest first; the last one runs on every x86-64.
constexpr size_t kMd5PathCount = 3;
extern const Md5Path kMd5Paths[kMd5PathCount];

const Md5Path& md5_path_in_use();  // the fastest one that this CPU supports

// One message, with plain registers.
void md5_blocks(uint32_t* state, const unsigned char* data, size_t blocks);

}  // namespace ff::simd

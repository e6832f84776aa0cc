// The ways to multiply matrices, for gemm.cc, the tests and the benchmark only. Each unit holds the
// same loops, compiled for one instruction set (gemm_unit.h).
#pragma once

#include <stddef.h>

namespace ff::simd {

// Of one block: a panel of A, a panel of B, both packed, added to a tile of C.
struct GemmFunctions {
  size_t rows, columns;  // of a tile
  // `from`: rows × depth of a matrix with `stride` floats a row -> depth × rows.
  void (*pack_a)(const float* from, size_t stride, size_t depth, float* to);
  // depth × columns of a matrix -> the same without gaps.
  void (*pack_b)(const float* from, size_t stride, size_t depth, float* to);
  // c: rows × columns with `stride` floats a row; `first`: overwritten, not added to.
  void (*tile)(const float* a, const float* b, size_t depth, float* c, size_t stride, int first);
};

extern const GemmFunctions kGemmAvx512;
extern const GemmFunctions kGemmAvx2;
extern const GemmFunctions kGemmSse2;

struct GemmPath {
  const char* name;
  bool (*supported)();  // by this CPU
  const GemmFunctions& run;
};

// Fastest first; the last one runs on every x86-64.
constexpr size_t kGemmPathCount = 3;
extern const GemmPath kGemmPaths[kGemmPathCount];

// Of the packed panels.
constexpr size_t kGemmDepth = 384;  // of a panel: a tile's parts of A and B stay in the first cache
constexpr size_t kGemmRows = 192;   // of packed A: in the second cache

}  // namespace ff::simd

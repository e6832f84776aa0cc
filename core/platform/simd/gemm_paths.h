// The code paths of GEMM, for gemm.cc, the tests and the benchmark only. Each has the same loops,
// compiled for one instruction set (gemm_unit.h).
#pragma once

#include <stddef.h>

namespace ff::simd {

// Packs panels of A and B, and adds the product of two panels to a tile of C.
struct GemmFunctions {
  size_t rows, columns;  // of a tile
  // Packs a panel of A: rows × depth of a matrix with `stride` floats per row -> depth × rows.
  void (*pack_a)(const float* from, size_t stride, size_t depth, float* to);
  // Packs a panel of B: depth × columns of a matrix -> the same without padding.
  void (*pack_b)(const float* from, size_t stride, size_t depth, float* to);
  // c: rows × columns with `stride` floats per row; `first`: overwrite c instead of adding to it.
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

constexpr size_t kGemmDepth = 384;  // depth of a panel; the panels of a tile stay in the L1 cache
constexpr size_t kGemmRows = 192;   // rows of the packed block of A, which stays in the L2 cache

}  // namespace ff::simd

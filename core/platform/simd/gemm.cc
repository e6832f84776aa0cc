// gemm.cc: cache blocking around the tiles of the chosen code path (Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008).
#include "platform/simd/gemm.h"

#include <algorithm>

#include "platform/base/check.h"
#include "platform/simd/gemm_paths.h"
#include "platform/simd/paths.h"

namespace ff::simd {

const GemmPath kGemmPaths[kGemmPathCount] = {
    {"avx512", [] { return __builtin_cpu_supports("avx512f") != 0; }, kGemmAvx512},
    {"avx2-fma", [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); },
     kGemmAvx2},
    {"sse2", [] { return true; }, kGemmSse2},
};

namespace {

const GemmFunctions& chosen() {
  static const GemmFunctions& functions = first_supported(kGemmPaths).run;
  return functions;
}

}  // namespace

Gemm::Gemm(GemmShape shape) : Gemm(shape, chosen()) {}

Gemm::Gemm(GemmShape shape, const GemmFunctions& path)
    : shape_(shape),
      path_(path),
      packed_a_(kGemmRows * kGemmDepth),
      packed_b_(kGemmDepth * shape.n) {
  FF_CHECK(shape.m % kGemmStep == 0 && shape.n % kGemmStep == 0 && shape.k % kGemmStep == 0);
}

double Gemm::flop() const {
  return 2.0 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) *
         static_cast<double>(shape_.k);
}

void Gemm::run(const float* a, const float* b, float* c) {
  const GemmFunctions& on = path_;
  const auto [m, n, k] = shape_;
  for (size_t from = 0; from < k; from += kGemmDepth) {
    const size_t depth = std::min(kGemmDepth, k - from);
    for (size_t column = 0; column < n; column += on.columns) {
      on.pack_b(b + from * n + column, n, depth, &packed_b_[column * depth]);
    }
    for (size_t top = 0; top < m; top += kGemmRows) {
      const size_t rows = std::min(kGemmRows, m - top);
      for (size_t row = 0; row < rows; row += on.rows) {
        on.pack_a(a + (top + row) * k + from, k, depth, &packed_a_[row * depth]);
      }
      for (size_t column = 0; column < n; column += on.columns) {
        for (size_t row = 0; row < rows; row += on.rows) {
          on.tile(&packed_a_[row * depth], &packed_b_[column * depth], depth,
                  c + (top + row) * n + column, n, from == 0 ? 1 : 0);
        }
      }
    }
  }
}

}  // namespace ff::simd

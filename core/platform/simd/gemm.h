// Single-precision matrix multiplication (GEMM) at the full speed of one core: `ff validate` uses
// it to load a core and compares the known result. On small integers all code paths give the same
// bits, because no sum is rounded.
#pragma once

#include <cstddef>
#include <vector>

namespace ff::simd {

// C (m × n) = A (m × k) · B (k × n). All three are multiples of kGemmStep.
struct GemmShape {
  size_t m = 0, n = 0, k = 0;
};
constexpr size_t kGemmStep = 96;

struct GemmFunctions;

class Gemm {
 public:
  // Uses the fastest code path that this CPU supports.
  explicit Gemm(GemmShape shape);
  // Uses `path` of gemm_paths.h, which the CPU must support.
  Gemm(GemmShape shape, const GemmFunctions& path);
  // c = a · b; all matrices are row-major without padding.
  void run(const float* a, const float* b, float* c);
  double flop() const;  // floating-point operations of one run: 2 m n k

 private:
  GemmShape shape_;
  const GemmFunctions& path_;
  std::vector<float> packed_a_, packed_b_;
};

}  // namespace ff::simd

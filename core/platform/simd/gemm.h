// Products of matrices of floats, as fast as one core makes them: what `ff validate` loads a core
// with, and whose result it knows beforehand. On small integers every path gives the same bits, for
// no sum is rounded then.
#pragma once

#include <cstddef>
#include <vector>

namespace ff::simd {

// Rows of A and C, columns of B and C, and what lies between. All three are multiples of kGemmStep.
struct GemmShape {
  size_t m = 0, n = 0, k = 0;
};
constexpr size_t kGemmStep = 96;

struct GemmFunctions;

class Gemm {
 public:
  // By the fastest path of this CPU.
  explicit Gemm(GemmShape shape);
  // By this one, of gemm_paths.h; the CPU has it.
  Gemm(GemmShape shape, const GemmFunctions& path);
  // c = a · b, all row after row without gaps: a is m × k, b k × n, c m × n.
  void run(const float* a, const float* b, float* c);
  double flop() const;  // of one run: 2 m n k

 private:
  GemmShape shape_;
  const GemmFunctions& path_;
  std::vector<float> packed_a_, packed_b_;
};

}  // namespace ff::simd

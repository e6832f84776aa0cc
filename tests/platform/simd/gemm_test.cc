// GEMM: every supported code path against the plain definition, bit for bit.
#include "platform/simd/gemm.h"

#include <gtest/gtest.h>

#include "platform/simd/gemm_paths.h"

namespace ff::simd {
namespace {

// Small integers: no sum is rounded, in any order of additions.
std::vector<float> matrix(size_t count, unsigned factor, unsigned modulus) {
  std::vector<float> made(count);
  for (size_t i = 0; i < count; i++) {
    made[i] =
        static_cast<float>(static_cast<int>(i * factor % modulus) - static_cast<int>(modulus / 2));
  }
  return made;
}

std::vector<float> plain_gemm(const GemmShape& shape, const std::vector<float>& a,
                              const std::vector<float>& b) {
  std::vector<float> c(shape.m * shape.n);
  for (size_t i = 0; i < shape.m; i++) {
    for (size_t x = 0; x < shape.k; x++) {
      for (size_t j = 0; j < shape.n; j++) {
        c[i * shape.n + j] += a[i * shape.k + x] * b[x * shape.n + j];
      }
    }
  }
  return c;
}

class GemmTest : public testing::TestWithParam<size_t> {};

TEST_P(GemmTest, IsTheProduct) {
  const GemmPath& path = kGemmPaths[GetParam()];
  if (!path.supported()) GTEST_SKIP() << "this CPU has no " << path.name;
  // One block, several in each direction, and depths beyond a panel's.
  for (const GemmShape shape : {GemmShape{96, 96, 96}, GemmShape{288, 192, 96},
                                GemmShape{96, 288, 480}, GemmShape{192, 96, 864}}) {
    const auto a = matrix(shape.m * shape.k, 7, 29), b = matrix(shape.k * shape.n, 11, 31);
    std::vector<float> c(shape.m * shape.n, 1e30F);  // what was there does not count
    Gemm gemm(shape, path.run);
    gemm.run(a.data(), b.data(), c.data());
    EXPECT_EQ(c, plain_gemm(shape, a, b)) << path.name << " " << shape.m << " " << shape.n;
    gemm.run(a.data(), b.data(), c.data());
    EXPECT_EQ(c, plain_gemm(shape, a, b)) << "again";
    EXPECT_EQ(gemm.flop(), 2.0 * static_cast<double>(shape.m * shape.n * shape.k));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmTest, testing::Range(size_t{0}, kGemmPathCount),
                         [](const auto& one) {
                           std::string name = kGemmPaths[one.param].name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace ff::simd

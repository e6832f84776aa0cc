// Averages of fp8 and of integers between ranks, against definitions that share no code with ff:
// the sum of all ranks, divided once, rounded once.
#include <gtest/gtest.h>

#include <cmath>

#include "training/collective/checks.h"
#include "training/collective/multi_node.h"

namespace ff::collective {
namespace {

constexpr size_t kAverages = 9001;

// The fields of OCP's fp8 formats.
struct Fp8 {
  int mantissa, bias;
  int first_exponent, last_exponent;  // of inputs: their sums are exact in float, in any order
};
constexpr Fp8 kE4m3{3, 7, 0, 14};
constexpr Fp8 kE5m2{2, 15, 9, 20};

double fp8_value(const Fp8& format, unsigned code) {
  const int exponent = static_cast<int>(code & 0x7f) >> format.mantissa;
  const int fraction = static_cast<int>(code & ((1U << format.mantissa) - 1));
  const int whole = exponent > 0 ? fraction + (1 << format.mantissa) : fraction;
  const double value = std::ldexp(whole, std::max(exponent, 1) - format.bias - format.mantissa);
  return (code & 0x80) != 0 ? -value : value;
}

// The nearest code; of two equally near ones the even one.
unsigned fp8_code(const Fp8& format, float value) {
  unsigned best = 0;
  for (unsigned code = 0; code < 0x7c; code++) {
    const double distance = std::fabs(fp8_value(format, code) - std::fabs(value));
    const double least = std::fabs(fp8_value(format, best) - std::fabs(value));
    if (distance < least || (distance == least && code % 2 == 0)) best = code;
  }
  return best | (std::signbit(value) ? 0x80 : 0);
}

void check_fp8(Communicator& ranks, DataType type, const Fp8& format) {
  const uint32_t all = ranks.ranks();
  std::vector<std::vector<uint8_t>> inputs(all);
  for (uint32_t rank = 0; rank < all; rank++) {
    SeededRng rng(rank);
    for (size_t i = 0; i < kAverages; i++) {
      const auto span = static_cast<uint64_t>(format.last_exponent - format.first_exponent + 1);
      const uint64_t exponent = static_cast<uint64_t>(format.first_exponent) + rng.below(span);
      const uint64_t code = rng.below(2) << 7 | exponent << format.mantissa |
                            rng.below(uint64_t{1} << format.mantissa);
      inputs[rank].push_back(static_cast<uint8_t>(code));
    }
  }
  std::vector<uint8_t> out(kAverages);
  ASSERT_TRUE(ranks
                  .run({.type = type,
                        .op = ReduceOp::avg,
                        .count = kAverages,
                        .in = inputs[ranks.rank()].data(),
                        .out = out.data()})
                  .ok());
  for (size_t i = 0; i < kAverages; i++) {
    double sum = fp8_value(format, inputs[0][i]);
    for (uint32_t rank = 1; rank < all; rank++) sum += fp8_value(format, inputs[rank][i]);
    const float average = static_cast<float>(sum) / static_cast<float>(all);
    ASSERT_EQ(out[i], fp8_code(format, average)) << "element " << i << ", average " << average;
  }
}

// Sums wrap around; quotients round towards zero.
template <class T>
void check_integers(Communicator& ranks, DataType type) {
  const uint32_t all = ranks.ranks();
  std::vector<std::vector<T>> inputs(all);
  for (uint32_t rank = 0; rank < all; rank++) {
    SeededRng rng(100 + rank);
    for (size_t i = 0; i < kAverages; i++) {
      const uint64_t bits = rng.next();
      inputs[rank].push_back(static_cast<T>(i % 3 == 0 ? bits : bits % 50 - 25));
    }
  }
  std::vector<T> out(kAverages);
  ASSERT_TRUE(ranks
                  .run({.type = type,
                        .op = ReduceOp::avg,
                        .count = kAverages,
                        .in = inputs[ranks.rank()].data(),
                        .out = out.data()})
                  .ok());
  for (size_t i = 0; i < kAverages; i++) {
    uint64_t sum = 0;
    for (const auto& input : inputs) sum += static_cast<uint64_t>(input[i]);
    const T wrapped = static_cast<T>(sum);
    ASSERT_EQ(out[i], static_cast<T>(wrapped / static_cast<T>(all))) << "element " << i;
  }
}

void check_averages(Communicator& ranks) {
  check_fp8(ranks, DataType::f8e4m3, kE4m3);
  check_fp8(ranks, DataType::f8e5m2, kE5m2);
  check_integers<int32_t>(ranks, DataType::i32);
  check_integers<int64_t>(ranks, DataType::i64);
  check_integers<uint8_t>(ranks, DataType::u8);
}

TEST(AverageTest, OnOneHost) {
  for (const uint32_t ranks : {1U, 3U, 4U, 7U}) with_ranks(ranks, check_averages);
}

TEST(AverageTest, BetweenHosts) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
    with_nodes({.ranks = {1, 2, 2}, .pipeline = {.algorithm = algorithm}}, check_averages);
  }
}

}  // namespace
}  // namespace ff::collective

// The loops of one GEMM code path, for the source that includes this: FF_LANES floats per register,
// a tile of FF_ROWS rows × FF_WIDE registers that fits into the registers. It uses GCC's vector
// extensions (https://gcc.gnu.org/onlinedocs/gcc/Vector-Extensions.html), so that one source serves
// all widths.
#pragma once

#include <stddef.h>

#include "platform/simd/gemm_paths.h"

namespace ff::simd {
namespace {

typedef float Lanes __attribute__((vector_size(FF_LANES * sizeof(float))));
typedef float Loose __attribute__((vector_size(FF_LANES * sizeof(float)), aligned(4)));

enum : size_t { kRows = FF_ROWS, kColumns = FF_WIDE * FF_LANES };

void pack_a(const float* from, size_t stride, size_t depth, float* to) {
  for (size_t row = 0; row < kRows; row++) {
    for (size_t at = 0; at < depth; at++) to[at * kRows + row] = from[row * stride + at];
  }
}

void pack_b(const float* from, size_t stride, size_t depth, float* to) {
  for (size_t at = 0; at < depth; at++) {
    for (size_t column = 0; column < kColumns; column += FF_LANES) {
      *reinterpret_cast<Loose*>(to + at * kColumns + column) =
          *reinterpret_cast<const Loose*>(from + at * stride + column);
    }
  }
}

void tile(const float* a, const float* b, size_t depth, float* c, size_t stride, int first) {
  Lanes sums[FF_ROWS][FF_WIDE];
#pragma GCC unroll 16
  for (size_t row = 0; row < FF_ROWS; row++) {
#pragma GCC unroll 4
    for (size_t wide = 0; wide < FF_WIDE; wide++) sums[row][wide] = Lanes{};
  }
  for (size_t at = 0; at < depth; at++) {
    Lanes part[FF_WIDE];
#pragma GCC unroll 4
    for (size_t wide = 0; wide < FF_WIDE; wide++) {
      part[wide] = *reinterpret_cast<const Loose*>(b + wide * FF_LANES);
    }
#pragma GCC unroll 16
    for (size_t row = 0; row < FF_ROWS; row++) {
      const Lanes one = a[row] - Lanes{};
#pragma GCC unroll 4
      for (size_t wide = 0; wide < FF_WIDE; wide++) sums[row][wide] += one * part[wide];
    }
    a += FF_ROWS;
    b += kColumns;
  }
#pragma GCC unroll 16
  for (size_t row = 0; row < FF_ROWS; row++) {
#pragma GCC unroll 4
    for (size_t wide = 0; wide < FF_WIDE; wide++) {
      Loose* const to = reinterpret_cast<Loose*>(c + row * stride + wide * FF_LANES);
      *to = first != 0 ? sums[row][wide] : *to + sums[row][wide];
    }
  }
}

}  // namespace
}  // namespace ff::simd

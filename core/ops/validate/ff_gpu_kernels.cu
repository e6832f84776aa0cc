// The kernels of ff-gpu: patterns in memory, and products of matrices of integers, which are exact
// in every type, so that one result is right on every device. Each compares what it finds by
// itself, and reports the address and the multiprocessor. The build does not need nvcc: the PTX
// beside this file is what gpu_kernels.py (tests/ops/validate) makes of it.
//
// FF_KERNELS: 70 for what every GPU since Volta has, 80 for types of the A100 and later, 0 for all.
#include "ops/validate/ff_gpu_kernels.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

__device__ inline unsigned multiprocessor() {
  unsigned number;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}
#endif

namespace wmma = nvcuda::wmma;

__device__ inline void report_wrong(ff_report* report, ff_word at, ff_word expected, ff_word got,
                                    unsigned copy) {
  const ff_word index = atomicAdd(&report->count, 1ull);
  if (index < FF_WRONG_MAX) report->first[index] = {at, expected, got, multiprocessor(), copy};
}

#if FF_KERNELS != 80

// Words of memory from `first` on in the numbering of all that is tested.
extern "C" __global__ void ff_pattern_write(ff_word* words, ff_word count, ff_word first,
                                            unsigned pattern, ff_word seed, ff_word flip) {
  const ff_word step = (ff_word)gridDim.x * blockDim.x;
  for (ff_word i = (ff_word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = ff_pattern(pattern, first + i, seed) ^ flip;
}

extern "C" __global__ void ff_pattern_check(const ff_word* words, ff_word count, ff_word first,
                                            unsigned pattern, ff_word seed, ff_word flip,
                                            ff_report* report) {
  const ff_word step = (ff_word)gridDim.x * blockDim.x;
  for (ff_word i = (ff_word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const ff_word expected = ff_pattern(pattern, first + i, seed) ^ flip;
    const ff_word got = words[i];
    if (got != expected) report_wrong(report, first + i, expected, got, 0);
  }
}

#endif

// Products. ---------------------------------------------------------------------------------------

struct Product {
  const double* expected;
  double* results;  // null, or where the product goes
  ff_report* report;
  unsigned copy;
};

__device__ inline void check_element(const Product& product, unsigned row, unsigned column,
                                     double sum) {
  const unsigned at = row * FF_SIDE + column;
  if (product.results != nullptr) product.results[at] = sum;
  if (sum == product.expected[at]) return;
  report_wrong(product.report, at, (ff_word)__double_as_longlong(product.expected[at]),
               (ff_word)__double_as_longlong(sum), product.copy);
}

// A tile by the tensor cores: each of four warps has a quarter.
template <class T, class Sum, int kDepth, class Factor = T>
struct TensorTile {
  static __device__ void multiply(const T* a, const T* b, unsigned tile, const Product& product) {
    __align__(32) __shared__ Sum sums[4][2][2][256];
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned row = tile / (FF_SIDE / FF_TILE) * FF_TILE + warp / 2 * 32;
    const unsigned column = tile % (FF_SIDE / FF_TILE) * FF_TILE + warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, kDepth, Sum> sum[2][2];
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++) wmma::fill_fragment(sum[i][j], Sum(0));
    for (unsigned k = 0; k < FF_SIDE; k += kDepth) {
      wmma::fragment<wmma::matrix_a, 16, 16, kDepth, Factor, wmma::row_major> x[2];
      wmma::fragment<wmma::matrix_b, 16, 16, kDepth, Factor, wmma::col_major> y[2];
      for (int i = 0; i < 2; i++) {
        wmma::load_matrix_sync(x[i], a + (row + 16 * i) * FF_SIDE + k, FF_SIDE);
        wmma::load_matrix_sync(y[i], b + (column + 16 * i) * FF_SIDE + k, FF_SIDE);
      }
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], x[i], y[j], sum[i][j]);
    }
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 2; j++)
        wmma::store_matrix_sync(sums[warp][i][j], sum[i][j], 16, wmma::mem_row_major);
    __syncwarp();
    for (unsigned at = lane; at < 4 * 256; at += 32) {
      const unsigned i = at / 512, j = at / 256 % 2, element = at % 256;
      check_element(product, row + 16 * i + element / 16, column + 16 * j + element % 16,
                    (double)sums[warp][i][j][element]);
    }
    __syncwarp();
  }
};

// A tile without tensor cores: each thread has 4 rows and 8 columns.
template <class T>
struct PlainTile {
  static __device__ void multiply(const T* a, const T* b, unsigned tile, const Product& product) {
    const unsigned row = tile / (FF_SIDE / FF_TILE) * FF_TILE + threadIdx.x / 8 * 4;
    const unsigned column = tile % (FF_SIDE / FF_TILE) * FF_TILE + threadIdx.x % 8 * 8;
    T sum[4][8] = {};
    for (unsigned k = 0; k < FF_SIDE; k++) {
      T x[4], y[8];
      for (int i = 0; i < 4; i++) x[i] = a[(row + i) * FF_SIDE + k];
      for (int j = 0; j < 8; j++) y[j] = b[(column + j) * FF_SIDE + k];
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++) sum[i][j] += x[i] * y[j];
    }
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 8; j++) check_element(product, row + i, column + j, (double)sum[i][j]);
  }
};

// Every block takes another tile and another copy of the matrices each round, so that every
// multiprocessor makes every tile, of factors from all of the memory.
template <class Tile, class T>
__device__ void run_gemm(const T* inputs, ff_word copies, unsigned first, unsigned rounds,
                         const double* expected, double* results, ff_report* report) {
  for (unsigned round = first; round < first + rounds; round++) {
    const ff_word copy = (blockIdx.x + (ff_word)round * gridDim.x) % copies;
    const T* const a = inputs + copy * 2 * FF_MATRIX;
    const Product product = {expected, results, report, (unsigned)copy};
    Tile::multiply(a, a + FF_MATRIX, (blockIdx.x + round) % FF_TILES, product);
  }
}

template <class T>
__device__ void run_fill(T* inputs, ff_word copies, ff_word seed, unsigned range) {
  const ff_word step = (ff_word)gridDim.x * blockDim.x, count = copies * 2 * FF_MATRIX;
  for (ff_word i = (ff_word)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    inputs[i] = T((float)ff_element(i % (2 * FF_MATRIX), seed, range));
}

#define GEMM(name, T, Tile)                                                                  \
  extern "C" __global__ void ff_fill_##name(T* inputs, ff_word copies, ff_word seed,         \
                                            unsigned range) {                                \
    run_fill(inputs, copies, seed, range);                                                   \
  }                                                                                          \
  extern "C" __global__ void ff_gemm_##name(const T* inputs, ff_word copies, unsigned first, \
                                            unsigned rounds, const double* expected,         \
                                            double* results, ff_report* report) {            \
    run_gemm<Tile>(inputs, copies, first, rounds, expected, results, report);                \
  }

#if FF_KERNELS != 80
using TileFp16 = TensorTile<__half, float, 16>;
GEMM(fp64, double, PlainTile<double>)
GEMM(fp32, float, PlainTile<float>)
GEMM(fp16, __half, TileFp16)
#endif

#if FF_KERNELS != 70
using TileBf16 = TensorTile<__nv_bfloat16, float, 16>;
using TileTf32 = TensorTile<float, float, 8, wmma::precision::tf32>;
using TileInt8 = TensorTile<signed char, int, 16>;
GEMM(bf16, __nv_bfloat16, TileBf16)
GEMM(tf32, float, TileTf32)
GEMM(int8, signed char, TileInt8)
#endif

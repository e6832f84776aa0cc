// The code paths of reductions, for reduce.cc, the tests and the benchmark only. Each has the same
// loops, compiled for one instruction set (reduce_unit.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ff::simd {

// Computes inputs[0][i] op inputs[1][i] op … in this order, and writes it to every output.
struct ReduceCall {
  const void* const* inputs;
  size_t inputs_count;  // 1 or more
  void* const* outputs;
  size_t outputs_count;
  size_t count;      // elements per array
  uint32_t divisor;  // divides the result before rounding; 0: no division
  int non_temporal;  // nonzero: write outputs with non-temporal stores
};
using ReduceKernel = void (*)(const ReduceCall& call);

enum : size_t { kReduceTypes = 9, kReduceKernels = 4, kReduceForms = 3 };

// Kernels by [form][type][operation]; types and operations as reduce.h numbers them. The forms are
// values to values, values to partial results, partial results to values. Partial results to
// partial results use the kernels of float.
struct ReduceFunctions {
  ReduceKernel kernels[kReduceForms][kReduceTypes][kReduceKernels];
};

extern const ReduceFunctions kReduceAvx512;
extern const ReduceFunctions kReduceAvx2;
extern const ReduceFunctions kReduceSse2;

struct WireFunctions;  // wire_paths.h

struct ReducePath {
  const char* name;
  bool (*supported)();  // by this CPU
  const ReduceFunctions& run;
  const WireFunctions& wire;
};

// Fastest first; the last one runs on every x86-64.
constexpr size_t kReducePathCount = 3;
extern const ReducePath kReducePaths[kReducePathCount];

const ReducePath& chosen_reduce_path();  // the one that reduce_path() names

}  // namespace ff::simd

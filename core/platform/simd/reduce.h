// Element-wise reduction of several arrays, the kernel of collective reductions. All code paths
// give the same bits for the same inputs in the same order.
//
// Narrow floats (half, bfloat16, fp8) are accumulated in float and rounded once, to nearest even.
// bfloat16 is the upper half of a float. fp8 follows OCP (Open Compute Project, "OFP8", 2023): e4m3
// has no infinity, so values out of range become NaN; e5m2 has an infinity. A NaN input gives the
// canonical quiet NaN. Integers wrap around. An average is the sum divided once; integers round
// towards zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/result.h"

namespace ff::simd {

enum class DataType : uint8_t { f32, f64, f16, bf16, f8e4m3, f8e5m2, i32, i64, u8 };
constexpr size_t kDataTypes = 9;

size_t size_of(DataType type);  // in bytes
// The names of nccl-tests: "float", "double", "half", "bfloat16", "f8e4m3", "f8e5m2", "int32",
// "int64", "uint8".
std::string_view data_type_name(DataType type);
std::optional<DataType> data_type_of(std::string_view name);
// The accumulation type, in which partial results are stored: float for narrow floats, else `type`.
DataType partial_type(DataType type);

// On floats, max and min return NaN if an input is NaN, and the first of two zeros.
enum class ReduceOp : uint8_t { sum, prod, max, min, avg };
constexpr size_t kReduceOps = 5;

std::string_view reduce_op_name(ReduceOp op);  // "sum", …
std::optional<ReduceOp> reduce_op_of(std::string_view name);

// Elements are either values of the data type, or partial results, which have the partial_type()
// and are not yet divided.
enum class ElementKind : uint8_t { value, partial };

struct ReduceSpec {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  ElementKind from = ElementKind::value;
  ElementKind to = ElementKind::value;
  uint32_t ranks = 1;  // the divisor of avg; unused by other operations
  // Writes outputs with non-temporal stores; for outputs that are not read soon.
  bool non_temporal = false;
};

// Arrays of `count` elements each, without alignment. The inputs (at least one) are combined in
// order. Each output gets the whole result and may be one of the inputs.
struct ReduceArrays {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  size_t count = 0;
};
void reduce_arrays(const ReduceSpec& what, const ReduceArrays& arrays);

// The code path in use, like "avx512": the fastest that this CPU supports, or the chosen one.
std::string_view reduce_path();
// Uses "avx512", "avx2" or "sse2" from now on. Errc::unsupported if this CPU lacks it, Errc::usage
// for another name.
Result<void> choose_reduce_path(std::string_view name);
struct ReducePath;
// Like reduce_arrays(), with a code path of reduce_paths.h that the CPU supports.
void reduce_with(const ReducePath& by, const ReduceSpec& what, const ReduceArrays& arrays);

}  // namespace ff::simd

// Element by element over several arrays: what a reduction of many ranks is made of. Every path
// gives the same bits for the same inputs in the same order.
//
// Narrow floats (half, bfloat16, fp8) are accumulated in float and rounded once, to nearest even.
// bfloat16 is the upper half of a float; fp8 is OCP's (Open Compute Project, "OFP8", 2023): e4m3
// has no infinity, so that what is too large becomes NaN; e5m2 has one. NaN in: the canonical quiet
// NaN out. Integers wrap around. An average is the sum, divided once: integers towards zero.
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
// As nccl-tests writes them: "float", "double", "half", "bfloat16", "f8e4m3", "f8e5m2", "int32",
// "int64", "uint8".
std::string_view data_type_name(DataType type);
std::optional<DataType> data_type_of(std::string_view name);
// What a partial result is kept in: float for narrow floats, the type itself for others.
DataType partial_type(DataType type);

// Of floats, max and min give NaN when an input is one; of two zeros, the first.
enum class ReduceOp : uint8_t { sum, prod, max, min, avg };
constexpr size_t kReduceOps = 5;

std::string_view reduce_op_name(ReduceOp op);  // "sum", …
std::optional<ReduceOp> reduce_op_of(std::string_view name);

// Whether elements are values of the type, or partial results: of partial_type(), not yet divided.
enum class Stage : uint8_t { value, partial };

struct Reduce {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Stage from = Stage::value;
  Stage to = Stage::value;
  uint32_t ranks = 1;  // whose average it is; of no meaning for other operations
  // For outputs that nobody reads soon: they are written past the caches.
  bool past_caches = false;
};

// Arrays of `count` elements each, aligned to nothing in particular. Inputs are combined in their
// order: one at least. Each output gets the whole result, and may be one of the inputs.
struct Arrays {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  size_t count = 0;
};
void reduce_arrays(const Reduce& what, const Arrays& arrays);

std::string_view reduce_path();  // "avx512": the fastest that this CPU has, or the chosen one
// "avx512", "avx2" or "sse2" from now on. Errc::unsupported: this CPU has not got it; Errc::usage.
Result<void> choose_reduce_path(std::string_view name);
struct ReducePath;
// By this one, of reduce_paths.h; the CPU has it.
void reduce_by(const ReducePath& by, const Reduce& what, const Arrays& arrays);

}  // namespace ff::simd

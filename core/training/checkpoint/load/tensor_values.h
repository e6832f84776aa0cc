// Compares two tensors of one type and shape element by element.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "training/checkpoint/load/extent_reader.h"

namespace ff::checkpoint {

// Elements are compared by value: 0 equals -0, and NaN equals NaN.
struct ValueChanges {
  uint64_t elements = 0;
  uint64_t changed = 0;
  uint64_t not_finite = 0;    // of the changed, those with a NaN or infinity on either side
  double max_difference = 0;  // largest |a - b| of the changed with finite values
};

// Compares equally many whole elements of both sides and adds the result to `changes`.
using ValueCompare = void (*)(ByteView a, ByteView b, ValueChanges& changes);

// For F64 F32 F16 BF16, I8 to I64, U8 to U64 and BOOL; null for any other type.
ValueCompare value_compare(std::string_view dtype);

// Reads both sides except extents that refer to the same stored bytes. The extents of `a` and of
// `b` have the same total size, a multiple of the element size.
Result<ValueChanges> compare_values(ReaderPair readers, std::string_view dtype,
                                    const std::vector<ChunkExtent>& a,
                                    const std::vector<ChunkExtent>& b);

}  // namespace ff::checkpoint

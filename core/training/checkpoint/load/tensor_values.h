// Comparing two tensors of one type and shape element by element.
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
  uint64_t not_finite = 0;    // of the changed, those with a NaN or infinity on one side at least
  double max_difference = 0;  // largest |a - b| of the changed with finite values
};

// Adds elements of both sides (equally many whole elements) to `changes`.
using ValueCompare = void (*)(ByteView a, ByteView b, ValueChanges& changes);

// For F64 F32 F16 BF16, I8 to I64, U8 to U64 and BOOL; null for any other type.
ValueCompare value_compare(std::string_view dtype);

// Reads both sides, apart from what is the same by its place. Of both, `a` and `b`, the extents add
// up to one size, a multiple of the element's.
Result<ValueChanges> compare_values(ReaderPair readers, std::string_view dtype,
                                    const std::vector<Extent>& a, const std::vector<Extent>& b);

}  // namespace ff::checkpoint

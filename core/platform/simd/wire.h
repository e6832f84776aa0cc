// Compressed encodings of floats, in which hosts exchange the partial sums of a reduction. The only
// loss is the rounding of each element; nothing is clipped. All code paths of reduce.h give the
// same bytes.
//
// bf16: each float is rounded to nearest even, as in reduce.h.
//
// fp8 is MXFP8 with E4M3 elements: OCP Microscaling Formats (MX) Specification v1.0, 2023. Blocks
// of 32 elements share a scale, a power of two (E8M0): its exponent + 127 in a byte, 0xff for NaN.
//
//     | element 0 | element 1 | … | element count - 1 | scale 0 | … | scale of the last block |
//
// Elements and scales are one byte each. The specification suggests the scale
// 2^(floor(log2(amax)) - 8), where amax is the largest magnitude of the block; it would clip values
// between 448 (the largest E4M3 number) and 512 times the scale. So this code uses the smallest
// power of two with amax / scale <= 448, and rounds elements to nearest even: a decoded element
// differs by at most 1/17 of its value, or 1/1024 of the scale if that is more.
//
// - An infinity or NaN is encoded as NaN and decoded as NaN. amax ignores them, so the finite
//   elements of the block keep their precision.
// - A block of only zeros, infinities and NaNs has scale 1. Signs of zeros are kept.
// - No scale is below 2^-127: in smaller blocks, elements become multiples of 2^-136.
// - Values that round up to 2^128 (from 31/16 of 2^127 on) decode to infinity; in bf16, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ff::simd {

enum class WireType : uint8_t { none, bf16, fp8 };  // none: uncompressed floats
constexpr size_t kWireTypes = 3;
constexpr size_t kWireBlock = 32;  // elements of fp8 that share a scale

std::string_view wire_type_name(WireType wire);  // "none", "bf16", "fp8"
std::optional<WireType> wire_type_of(std::string_view name);

// The encoded size of `count` floats, in bytes.
size_t wire_bytes(WireType wire, size_t count);
// Encode `count` floats to wire_bytes() bytes, and decode them. No alignment is needed; `from` and
// `into` must not overlap. All bytes are valid input: a block whose scale is NaN decodes to NaNs,
// values out of range decode to infinity. Decoded NaNs are canonical quiet NaNs, except with
// `none`, which copies all bits.
void encode(WireType wire, const float* from, size_t count, std::byte* into);
void decode(WireType wire, const std::byte* from, size_t count, float* into);

struct ReducePath;
// The same with a code path of reduce_paths.h that the CPU supports.
void encode_with(const ReducePath& by, WireType wire, const float* from, size_t count,
                 std::byte* into);
void decode_with(const ReducePath& by, WireType wire, const std::byte* from, size_t count,
                 float* into);

}  // namespace ff::simd

// Floats on the wire: partial sums of a reduction on their way between hosts, in a smaller form.
// What is lost is the rounding of each element; nothing is clipped. Every path of reduce.h gives
// the same bytes.
//
// bf16: each float rounded to nearest even, as everywhere in reduce.h.
//
// fp8 is MXFP8 with E4M3 elements: OCP Microscaling Formats (MX) Specification v1.0, 2023. Blocks
// of 32 elements share a scale, a power of two (E8M0): its exponent + 127 in a byte, 0xff for NaN.
//
//     | element 0 | element 1 | … | element count - 1 | scale 0 | … | scale of the last block |
//
// A byte each. The specification suggests the scale 2^(floor(log2(amax)) - 8), with amax the
// largest magnitude of the block; then all between 448 (E4M3's largest) and 512 scales is cut to
// 448. So here it is the smallest power of two with amax / scale <= 448, and elements are rounded
// to nearest even: what comes back is off by 1/17 of what was sent, or by 1/1024 of the scale where
// that is more.
//
// - An infinity or NaN becomes a NaN of the element and comes back as NaN; amax is that of the
//   block's finite elements, which so stay what they are.
// - A block without other than zeros (and these) has scale 1. Signs of zeros are kept.
// - No scale is below 2^-127: in blocks that small, elements become multiples of 2^-136.
// - What is rounded up to 2^128 (from 31/16 of 2^127 on) comes back as infinity; in bf16, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ff::simd {

enum class Wire : uint8_t { none, bf16, fp8 };  // none: floats as they are
constexpr size_t kWires = 3;
constexpr size_t kWireBlock = 32;  // elements of fp8 that share a scale

std::string_view wire_name(Wire wire);  // "none", "bf16", "fp8"
std::optional<Wire> wire_of(std::string_view name);

// Of `count` floats, in bytes.
size_t wire_bytes(Wire wire, size_t count);
// `count` floats to wire_bytes() bytes and back, aligned to nothing in particular; the two places
// do not overlap. Any bytes decode: a block whose scale is NaN to NaNs, what no float reaches to
// infinity. A NaN is the canonical quiet one, but with `none`, which changes no bit.
void encode(Wire wire, const float* from, size_t count, std::byte* into);
void decode(Wire wire, const std::byte* from, size_t count, float* into);

struct ReducePath;
// By this one, of reduce_paths.h; the CPU has it.
void encode_by(const ReducePath& by, Wire wire, const float* from, size_t count, std::byte* into);
void decode_by(const ReducePath& by, Wire wire, const std::byte* from, size_t count, float* into);

}  // namespace ff::simd

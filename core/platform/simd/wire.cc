// wire.cc: names, encoded sizes, and choosing the kernel of each wire type.
#include "platform/simd/wire.h"

#include <array>
#include <cstring>

#include "platform/simd/reduce.h"
#include "platform/simd/reduce_paths.h"
#include "platform/simd/wire_paths.h"

namespace ff::simd {
namespace {

constexpr std::array<std::string_view, kWireTypes> kNames = {"none", "bf16", "fp8"};

// Converts one array between values and partial results.
void convert(const ReducePath& by, ElementKind from, ElementKind to, const void* input,
             size_t count, void* output) {
  const ReduceSpec what{.type = DataType::bf16, .from = from, .to = to};
  reduce_with(by, what, {{&input, 1}, {&output, 1}, count});
}

const uint8_t* codes(const std::byte* from) { return reinterpret_cast<const uint8_t*>(from); }
uint8_t* codes(std::byte* into) { return reinterpret_cast<uint8_t*>(into); }

}  // namespace

std::string_view wire_type_name(WireType wire) { return kNames[static_cast<size_t>(wire)]; }

std::optional<WireType> wire_type_of(std::string_view name) {
  for (size_t i = 0; i < kWireTypes; i++) {
    if (kNames[i] == name) return static_cast<WireType>(i);
  }
  return std::nullopt;
}

size_t wire_bytes(WireType wire, size_t count) {
  switch (wire) {
    case WireType::none: return count * sizeof(float);
    case WireType::bf16: return count * size_of(DataType::bf16);
    case WireType::fp8: return count + (count + kWireBlock - 1) / kWireBlock;
  }
  return 0;
}

void encode(WireType wire, const float* from, size_t count, std::byte* into) {
  encode_with(chosen_reduce_path(), wire, from, count, into);
}

void decode(WireType wire, const std::byte* from, size_t count, float* into) {
  decode_with(chosen_reduce_path(), wire, from, count, into);
}

void encode_with(const ReducePath& by, WireType wire, const float* from, size_t count,
                 std::byte* into) {
  if (count == 0) return;  // the pointers may be null
  switch (wire) {
    case WireType::none: std::memcpy(into, from, count * sizeof(float)); return;
    case WireType::bf16:
      convert(by, ElementKind::partial, ElementKind::value, from, count, into);
      return;
    case WireType::fp8: by.wire.encode(from, count, codes(into), codes(into) + count); return;
  }
}

void decode_with(const ReducePath& by, WireType wire, const std::byte* from, size_t count,
                 float* into) {
  if (count == 0) return;
  switch (wire) {
    case WireType::none: std::memcpy(into, from, count * sizeof(float)); return;
    case WireType::bf16:
      convert(by, ElementKind::value, ElementKind::partial, from, count, into);
      return;
    case WireType::fp8: by.wire.decode(codes(from), codes(from) + count, count, into); return;
  }
}

}  // namespace ff::simd

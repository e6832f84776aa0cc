// wire.cc: names and sizes, and the kernels of each form.
#include "platform/simd/wire.h"

#include <array>
#include <cstring>

#include "platform/simd/reduce.h"
#include "platform/simd/reduce_paths.h"
#include "platform/simd/wire_paths.h"

namespace ff::simd {
namespace {

constexpr std::array<std::string_view, kWires> kNames = {"none", "bf16", "fp8"};

// One array, element by element.
void convert(const ReducePath& by, Stage from, Stage to, const void* input, size_t count,
             void* output) {
  const Reduce what{.type = DataType::bf16, .from = from, .to = to};
  reduce_by(by, what, {{&input, 1}, {&output, 1}, count});
}

const uint8_t* codes(const std::byte* from) { return reinterpret_cast<const uint8_t*>(from); }
uint8_t* codes(std::byte* into) { return reinterpret_cast<uint8_t*>(into); }

}  // namespace

std::string_view wire_name(Wire wire) { return kNames[static_cast<size_t>(wire)]; }

std::optional<Wire> wire_of(std::string_view name) {
  for (size_t i = 0; i < kWires; i++) {
    if (kNames[i] == name) return static_cast<Wire>(i);
  }
  return std::nullopt;
}

size_t wire_bytes(Wire wire, size_t count) {
  switch (wire) {
    case Wire::none: return count * sizeof(float);
    case Wire::bf16: return count * size_of(DataType::bf16);
    case Wire::fp8: return count + (count + kWireBlock - 1) / kWireBlock;
  }
  return 0;
}

void encode(Wire wire, const float* from, size_t count, std::byte* into) {
  encode_by(chosen_reduce_path(), wire, from, count, into);
}

void decode(Wire wire, const std::byte* from, size_t count, float* into) {
  decode_by(chosen_reduce_path(), wire, from, count, into);
}

void encode_by(const ReducePath& by, Wire wire, const float* from, size_t count, std::byte* into) {
  if (count == 0) return;  // then there may be no pointers
  switch (wire) {
    case Wire::none: std::memcpy(into, from, count * sizeof(float)); return;
    case Wire::bf16: convert(by, Stage::partial, Stage::value, from, count, into); return;
    case Wire::fp8: by.wire.encode(from, count, codes(into), codes(into) + count); return;
  }
}

void decode_by(const ReducePath& by, Wire wire, const std::byte* from, size_t count, float* into) {
  if (count == 0) return;
  switch (wire) {
    case Wire::none: std::memcpy(into, from, count * sizeof(float)); return;
    case Wire::bf16: convert(by, Stage::value, Stage::partial, from, count, into); return;
    case Wire::fp8: by.wire.decode(codes(from), codes(from) + count, count, into); return;
  }
}

}  // namespace ff::simd

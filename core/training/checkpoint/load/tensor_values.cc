// tensor_values.cc: elements of every common type, widened and compared.
#include "training/checkpoint/load/tensor_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/format/safetensors.h"

namespace ff::checkpoint {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// IEEE 754 half: sign, 5 bits of exponent (bias 15), 10 of fraction.
struct Half {
  uint16_t bits;
  double widen() const {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double value = 0;
    if (exponent == 31) {
      value = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
      value = std::ldexp(fraction, -24);
    } else {
      value = std::ldexp(fraction + 1024, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -value : value;
  }
};

// The upper half of a float.
struct Brain {
  uint16_t bits;
  double widen() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

double widen(double value) { return value; }
double widen(float value) { return value; }
double widen(Half value) { return value.widen(); }
double widen(Brain value) { return value.widen(); }

template <class T>
void compare_floats(ByteView a, ByteView b, ValueChanges& changes) {
  changes.elements += a.size() / sizeof(T);
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) == 0) continue;
    const double left = widen(load<T>(a.data() + at));
    const double right = widen(load<T>(b.data() + at));
    if (left == right || (std::isnan(left) && std::isnan(right))) continue;
    changes.changed++;
    if (std::isfinite(left) && std::isfinite(right)) {
      changes.max_difference = std::max(changes.max_difference, std::fabs(left - right));
    } else {
      changes.not_finite++;
    }
  }
}

template <class T>
void compare_integers(ByteView a, ByteView b, ValueChanges& changes) {
  changes.elements += a.size() / sizeof(T);
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    const T left = load<T>(a.data() + at);
    const T right = load<T>(b.data() + at);
    if (left == right) continue;
    changes.changed++;
    // Unsigned wrap-around gives the exact difference, whatever the signs.
    const uint64_t difference = left > right
                                    ? static_cast<uint64_t>(left) - static_cast<uint64_t>(right)
                                    : static_cast<uint64_t>(right) - static_cast<uint64_t>(left);
    changes.max_difference = std::max(changes.max_difference, static_cast<double>(difference));
  }
}

}  // namespace

ValueCompare value_compare(std::string_view dtype) {
  struct Known {
    std::string_view name;
    ValueCompare compare;
  };
  constexpr std::array<Known, 13> kKnown = {{{"F64", compare_floats<double>},
                                             {"F32", compare_floats<float>},
                                             {"F16", compare_floats<Half>},
                                             {"BF16", compare_floats<Brain>},
                                             {"I8", compare_integers<int8_t>},
                                             {"I16", compare_integers<int16_t>},
                                             {"I32", compare_integers<int32_t>},
                                             {"I64", compare_integers<int64_t>},
                                             {"U8", compare_integers<uint8_t>},
                                             {"U16", compare_integers<uint16_t>},
                                             {"U32", compare_integers<uint32_t>},
                                             {"U64", compare_integers<uint64_t>},
                                             {"BOOL", compare_integers<uint8_t>}}};
  for (const auto& known : kKnown) {
    if (known.name == dtype) return known.compare;
  }
  return nullptr;
}

Result<ValueChanges> compare_values(ReaderPair readers, std::string_view dtype,
                                    const std::vector<ChunkExtent>& a,
                                    const std::vector<ChunkExtent>& b) {
  const ValueCompare compare = value_compare(dtype);
  FF_CHECK(compare != nullptr);
  const uint64_t width = dtype_bits(dtype) / 8;
  ValueChanges changes;
  ExtentCursor left(a);
  ExtentCursor right(b);
  while (!left.ended() && !right.ended()) {
    uint64_t length = std::min(left.left(), right.left());
    // Zeros on both sides may be many, and are not read.
    if (!left.in_zeros() || !right.in_zeros()) length = std::min(length, kChunkBytes);
    if (length % width != 0) {
      return fail(Errc::corrupt, "an extent ends in the middle of an element");
    }
    const ExtentPart part = left.take(length);
    const ExtentPart other = right.take(length);
    if (same_stored_bytes(part, other)) {
      changes.elements += length / width;
      continue;
    }
    FF_TRY(const auto bytes, readers.a.read(part));
    FF_TRY(const auto other_bytes, readers.b.read(other));
    compare(bytes, other_bytes, changes);
  }
  return changes;
}

}  // namespace ff::checkpoint

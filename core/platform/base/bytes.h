// Views of raw memory and little-endian fields. Every on-disk and on-wire integer of ff is
// little-endian; store_le/load_le are the only way they are written and read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ff {

using ByteView = std::span<const std::byte>;
using ByteSpan = std::span<std::byte>;

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

static_assert(std::endian::native == std::endian::little, "ff runs on little-endian machines");

inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
void store_le(std::byte* at, T value) {
  static_assert(std::is_integral_v<T>);
  std::memcpy(at, &value, sizeof(T));
}

template <class T>
T load_le(const std::byte* at) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void append_le(std::string& to, T value) {
  std::byte bytes[sizeof(T)];
  store_le(bytes, value);
  to.append(as_text(bytes));
}

// Big-endian, for keys: they sort in the order of the numbers.
inline void append_be(std::string& to, uint64_t value) { append_le(to, __builtin_bswap64(value)); }

constexpr uint64_t align_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
constexpr uint64_t align_down(uint64_t value, uint64_t unit) { return value / unit * unit; }

}  // namespace ff

// crc32c.cc: choosing the code path, and combining two CRCs.
//
// A CRC is a polynomial over GF(2) modulo P. Appending n bytes to a message multiplies its CRC by
// x^(8n); crc32c_combine() does this with the powers x^(8 * 2^k) from a table.
#include "platform/simd/crc32c.h"

#include <array>

#include "platform/simd/crc32c_paths.h"
#include "platform/simd/paths.h"

namespace ff::simd {

const Crc32cPath kCrc32cPaths[kCrc32cPathCount] = {
    {"avx512-vpclmul",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
              __builtin_cpu_supports("sse4.2");
     },
     crc32c_avx512_vpclmul},
    {"sse42-pclmul",
     [] { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"); },
     crc32c_sse42_pclmul},
    {"sse42", [] { return __builtin_cpu_supports("sse4.2") != 0; }, crc32c_sse42},
    {"portable", [] { return true; }, crc32c_portable},
};

namespace {

const Crc32cPath& chosen_path() {
  static const Crc32cPath& path = first_supported(kCrc32cPaths);
  return path;
}

constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? 0x82f63b78 : 0);
  }
  return product;
}

// kBytePowers[k] = x^(8 * 2^k)
constexpr auto kBytePowers = [] {
  std::array<uint32_t, 64> powers{};
  powers[0] = crc32c_power_of_x(8);
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = multiply(powers[k - 1], powers[k - 1]);
  return powers;
}();

}  // namespace

uint32_t crc32c(ByteView data, uint32_t seed) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  return ~chosen_path().run(~seed, bytes, data.size());
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_length) {
  for (size_t k = 0; second_length != 0; ++k, second_length >>= 1) {
    if ((second_length & 1) != 0) first = multiply(first, kBytePowers[k]);
  }
  return first ^ second;
}

std::string_view crc32c_path() { return chosen_path().name; }

}  // namespace ff::simd

// The code paths of CRC32C, for crc32c.cc, the tests and the benchmark only.
//
// Each path works on the raw CRC register, without the inversions before and after. Their sources
// are compiled for newer CPUs than the rest of the program, so they include only this header and
// the compiler's intrinsics: the linker could pick the AVX-512 copy of a shared inline function,
// which would crash on an older CPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ff::simd {

using Crc32cRegister = uint32_t (*)(uint32_t crc, const unsigned char* data, size_t length);

struct Crc32cPath {
  const char* name;
  bool (*supported)();  // by this CPU
  Crc32cRegister run;
};

// Fastest first; the last one runs everywhere.
constexpr size_t kCrc32cPathCount = 4;
extern const Crc32cPath kCrc32cPaths[kCrc32cPathCount];

uint32_t crc32c_portable(uint32_t crc, const unsigned char* data, size_t length);
uint32_t crc32c_sse42(uint32_t crc, const unsigned char* data, size_t length);
uint32_t crc32c_sse42_pclmul(uint32_t crc, const unsigned char* data, size_t length);
uint32_t crc32c_avx512_vpclmul(uint32_t crc, const unsigned char* data, size_t length);

// x^exponent modulo the polynomial; bit 31 is x^0 ("reflected"), as everywhere here. Consteval, so
// that it emits no function.
consteval uint32_t crc32c_power_of_x(uint32_t exponent) {
  uint32_t power = 0x80000000;
  for (uint32_t i = 0; i < exponent; ++i) {
    power = (power >> 1) ^ ((power & 1) != 0 ? 0x82f63b78 : 0);
  }
  return power;
}

}  // namespace ff::simd

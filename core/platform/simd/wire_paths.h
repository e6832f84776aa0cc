// The code paths of MXFP8 encoding and decoding, for wire.cc, the tests and the benchmark only.
// Each has the same loops, compiled for one instruction set (wire_unit.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ff::simd {

// Encodes and decodes `count` floats, with one scale per block of up to 32. No alignment is needed.
struct WireFunctions {
  void (*encode)(const float* from, size_t count, uint8_t* elements, uint8_t* scales);
  void (*decode)(const uint8_t* elements, const uint8_t* scales, size_t count, float* into);
};

extern const WireFunctions kWireAvx512;
extern const WireFunctions kWireAvx2;
extern const WireFunctions kWireSse2;

}  // namespace ff::simd

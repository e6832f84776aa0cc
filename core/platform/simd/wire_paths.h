// The ways to make MXFP8 of floats and back, for wire.cc, the tests and the benchmark only. Each
// unit holds the same loops, compiled for one instruction set (wire_unit.h).
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace ff::simd {

// Of `count` floats each, and a scale for every 32 of them or fewer. Aligned to nothing.
struct WireFunctions {
  void (*encode)(const float* from, size_t count, uint8_t* elements, uint8_t* scales);
  void (*decode)(const uint8_t* elements, const uint8_t* scales, size_t count, float* into);
};

extern const WireFunctions kWireAvx512;
extern const WireFunctions kWireAvx2;
extern const WireFunctions kWireSse2;

}  // namespace ff::simd

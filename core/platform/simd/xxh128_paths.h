// The code paths of XXH3-128 (seed 0), for digest.cc, the tests and the benchmark only. Each is
// xxHash itself, compiled for one instruction set (xxh128_unit.h).
#pragma once

#include <stddef.h>

namespace ff::simd {

// Storage for an XXH3_state_t; xxh128_unit.h asserts that it is large enough.
struct alignas(64) Xxh128State {
  unsigned char bytes[576];
};

constexpr size_t kXxh128Bytes = 16;  // canonical: big-endian, high half first

struct Xxh128Functions {
  void (*one_shot)(const void* data, size_t length, unsigned char* digest);
  void (*reset)(Xxh128State* state);
  void (*update)(Xxh128State* state, const void* data, size_t length);
  void (*digest)(const Xxh128State* state, unsigned char* digest);
};

extern const Xxh128Functions kXxh128Avx512;
extern const Xxh128Functions kXxh128Avx2;
extern const Xxh128Functions kXxh128Sse2;

struct Xxh128Path {
  const char* name;
  bool (*supported)();  // by this CPU
  const Xxh128Functions& run;
};

// Fastest first; the last one runs on every x86-64.
constexpr size_t kXxh128PathCount = 3;
extern const Xxh128Path kXxh128Paths[kXxh128PathCount];

const Xxh128Path& xxh128_path();  // the fastest one that this CPU supports

}  // namespace ff::simd

// The body of xxh128_sse2.cc, xxh128_avx2.cc and xxh128_avx512.cc: xxHash wrapped as
// Xxh128Functions. They select the instruction set (#pragma GCC target, XXH_VECTOR) before they
// include this. XXH_INLINE_ALL makes all xxHash functions static, so that the three copies do not
// collide.
#pragma once

#define XXH_INLINE_ALL
#include <immintrin.h>
#include <xxhash.h>

#include "platform/simd/xxh128_paths.h"

namespace ff::simd {
namespace {

static_assert(sizeof(XXH3_state_t) <= sizeof(Xxh128State));
static_assert(alignof(XXH3_state_t) <= alignof(Xxh128State));
static_assert(sizeof(XXH128_canonical_t) == kXxh128Bytes);

XXH3_state_t* native(Xxh128State* state) { return reinterpret_cast<XXH3_state_t*>(state); }
const XXH3_state_t* native(const Xxh128State* state) {
  return reinterpret_cast<const XXH3_state_t*>(state);
}

void store(XXH128_hash_t hash, unsigned char* digest) {
  XXH128_canonicalFromHash(reinterpret_cast<XXH128_canonical_t*>(digest), hash);
}

void one_shot(const void* data, size_t length, unsigned char* digest) {
  store(XXH3_128bits(data, length), digest);
}

void reset(Xxh128State* state) { XXH3_128bits_reset(native(state)); }

void update(Xxh128State* state, const void* data, size_t length) {
  XXH3_128bits_update(native(state), data, length);
}

void digest_of(const Xxh128State* state, unsigned char* digest) {
  store(XXH3_128bits_digest(native(state)), digest);
}

}  // namespace
}  // namespace ff::simd

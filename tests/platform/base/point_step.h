// How far a test that takes all points of something (steps of a save, bits of a file) goes from one
// to the next: to the very next, but under the sanitizers, where each costs ten times as much and
// other faults are looked for.
#pragma once

#include <cstdint>

namespace ff {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kPointStep = 7;  // no divisor of 8: all bits of a byte have their turn
#else
constexpr uint64_t kPointStep = 1;
#endif

}  // namespace ff

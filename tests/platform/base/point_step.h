// The step width of tests that iterate over all points of something (steps of a save, bits of a
// file): 1, but more under the sanitizers, where each point costs ten times as much and the tests
// look for other faults.
#pragma once

#include <cstdint>

namespace ff {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kPointStep = 7;  // no divisor of 8: all bits of a byte have their turn
#else
constexpr uint64_t kPointStep = 1;
#endif

}  // namespace ff

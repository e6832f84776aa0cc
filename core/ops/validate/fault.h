// Injected faults, to prove that the checks find them: each simulates broken hardware at the place
// where a check would see it. A run has at most one; used by `ff validate faults` of development
// builds and by the tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ff::validate {

enum class InjectedFault : uint8_t {
  none,
  core_bit,    // the last core flips one bit in one matrix product
  core_slow,   // the last core takes eight times as long for each product
  memory_bit,  // a bit of memory changes after it was written
  file_bit,    // a block of a file is read with a flipped bit
  sum_bit,     // a part of an allreduce result has a flipped bit
  hang,        // a check never returns
  crash,       // a check dies of SIGBUS
};

struct NamedFault {
  const char* name;  // "core-bit"
  InjectedFault fault;
  const char* check;  // the check that must find it
  const char* about;
};
std::span<const NamedFault> all_faults();

}  // namespace ff::validate

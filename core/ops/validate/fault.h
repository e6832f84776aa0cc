// Faults that are put in on purpose, to see that they are found: each is something broken hardware
// does, at the place where a check would meet it. A run has one or none; `ff validate faults` of
// development builds and the tests ask for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ff::validate {

enum class Fault : uint8_t {
  none,
  core_bit,    // the last core makes one wrong bit in one product of matrices
  core_slow,   // the last core takes twice as long for each product
  memory_bit,  // a bit of memory does not stay as it was written
  file_bit,    // a block of a file comes back with a bit flipped
  sum_bit,     // a part of a sum over all ranks has a bit flipped
  hang,        // a check that never ends
  crash,       // a check that memory ends with SIGBUS
};

struct NamedFault {
  const char* name;  // "core-bit"
  Fault fault;
  const char* check;  // that has to find it
  const char* about;
};
std::span<const NamedFault> all_faults();

}  // namespace ff::validate

// fault.cc: the table of faults, and the check that must find each.
#include "ops/validate/fault.h"

#include <array>

namespace ff::validate {

namespace {

using enum InjectedFault;

constexpr std::array kFaults = {
    NamedFault{"core-bit", core_bit, "cpu.kernels", "one wrong bit in a product on the last core"},
    NamedFault{"core-slow", core_slow, "cpu.kernels", "the last core takes eight times as long"},
    NamedFault{"memory-bit", memory_bit, "memory.pattern", "one bit of memory does not stay"},
    NamedFault{"file-bit", file_bit, "storage.speed", "one bit of a file comes back flipped"},
    NamedFault{"sum-bit", sum_bit, "collective.reduce", "one bit of a sum over all ranks"},
    NamedFault{"hang", hang, "host.clock", "a check never ends"},
    NamedFault{"crash", crash, "host.kernel", "a check is ended by SIGBUS"},
};

}  // namespace

std::span<const NamedFault> all_faults() { return kFaults; }

}  // namespace ff::validate

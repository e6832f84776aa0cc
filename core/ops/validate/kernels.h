// What a core is loaded with, whose result is known in advance: a wrong bit is the core's (silent
// data corruption). Floats are small integers, whose sums no path rounds; transforms are over whole
// numbers; digests are those of the standards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "platform/base/bytes.h"

namespace ff::validate {

// Memory of one core's kernels, filled with the same bytes each time.
class KernelMemory {
 public:
  KernelMemory();
  ~KernelMemory();
  struct Parts;
  Parts& parts() { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

struct Kernel {
  const char* name;  // "gemm"
  const char* what;  // what of a core it works: "vector multiply-add"
  double work;       // of one run, in `unit`
  const char* unit;  // "FLOP", "B"
  uint32_t golden;   // CRC32C of what it makes
  // One run; the CRC32C of its result.
  uint32_t (*run)(KernelMemory& memory);
};
std::span<const Kernel> kernels();

}  // namespace ff::validate

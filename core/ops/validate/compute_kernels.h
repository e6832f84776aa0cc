// Compute kernels with known results, to load a core: a wrong bit is a fault of the core (silent
// data corruption). Floats are small integers, whose sums are exact in any order; transforms use
// integers; digests are test vectors of the standards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "platform/base/bytes.h"

namespace ff::validate {

// The memory of the kernels of one core, filled with the same bytes each time.
class KernelMemory {
 public:
  KernelMemory();
  ~KernelMemory();
  struct Parts;
  Parts& parts() { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

struct ComputeKernel {
  const char* name;  // "gemm"
  const char* what;  // the part of the core it exercises: "vector multiply-add"
  double work;       // of one run, in `unit`
  const char* unit;  // "FLOP", "B"
  uint32_t golden;   // CRC32C of the correct result
  // Runs it once; returns the CRC32C of the result.
  uint32_t (*run)(KernelMemory& memory);
};
std::span<const ComputeKernel> compute_kernels();

}  // namespace ff::validate

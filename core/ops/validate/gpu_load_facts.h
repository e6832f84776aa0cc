// Parses the output of a load of ff-gpu (format: ff_gpu_load.c). A driver may have broken off the
// program anywhere: malformed lines are ignored, and malformed values are unknown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/gpu_facts.h"

namespace ff::validate {

// A call of the driver that failed.
struct CudaFailure {
  std::string call = {};  // "cuInit"
  uint64_t code = 0;      // CUresult; 0 for dlopen, dlsym and GPUs that are too old
  std::string name = {}, text = {};
};

// A wrong word in memory (at: byte), or element of a product (at: row × side + column).
struct GpuWrong {
  std::string step = {};  // the pattern or type
  uint64_t at = 0;
  std::string expected = {}, got = {};  // hexadecimal; of a product, the bits of a double
  NvmlValue processor = {};             // the multiprocessor that has found it
};

struct GpuMemoryTest {
  uint64_t bytes = 0, passes = 0, wrong = 0, nanoseconds = 0;
};

// Products of matrices in one type.
struct GpuProducts {
  std::string type = {};  // "fp16"
  uint64_t bytes = 0;     // of the factors
  uint64_t products = 0, operations = 0, nanoseconds = 0;
  std::string digest = {}, host = {}, golden = {};  // by the GPU, by the host, known
  uint64_t wrong = 0;                               // elements
};

struct GpuCopy {
  std::string direction = {};  // "to-device", "to-peer"
  std::string peer = {};       // address of the other GPU
  uint64_t bytes = 0, nanoseconds = 0;
  double rate() const;  // bytes per second; 0: unknown
};

// The PCIe link under load, and what it can do.
struct GpuLink {
  NvmlValue generation = {}, lanes = {}, generation_max = {}, lanes_max = {};
  NvmlValue memory_bits = {}, memory_mhz = {};
};

// An NVLink during the load.
struct LoadedNvLink {
  uint64_t number = 0;
  bool active = false;
  std::string remote = {};  // address of what is at the other end; empty: unknown
  uint64_t errors = 0;      // since the load began
};

struct EccCount {
  uint64_t corrected = 0, uncorrected = 0;
};

struct GpuLoadReport {
  std::string name = {};  // of the GPU
  std::string step = {};  // the last one that began
  std::optional<CudaFailure> failure = {};
  bool hung = false;  // the program has reported that the step did not end
  bool ended = false;
  std::vector<EccCount> ecc = {};  // before and after; fewer: unknown
  std::optional<GpuMemoryTest> memory = {};
  std::vector<GpuProducts> products = {};
  std::vector<GpuCopy> copies = {};
  std::optional<GpuLink> link = {};
  NvmlValue nvlink_mbps = {};  // MB/s of each link
  std::vector<LoadedNvLink> nvlinks = {};
  std::vector<GpuWrong> wrong = {};
  std::vector<uint64_t> xids = {};
};

GpuLoadReport parse_gpu_load(std::string_view output);

}  // namespace ff::validate

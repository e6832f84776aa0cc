// What ff-gpu has said (its lines: ff_gpu.c), taken apart. A library of the driver wrote it, maybe
// a broken one: a line that makes no sense is left out, and a fact that makes none is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ff::validate {

using Fact = std::optional<uint64_t>;

// A call that failed.
struct NvmlError {
  std::string call = {};  // "nvmlInit_v2"
  uint64_t code = 0;      // nvmlReturn_t; of dlopen and dlsym 0
  std::string text = {};
};

struct NvLink {
  uint64_t number = 0;
  bool active = false;
  Fact errors = {};  // replays, recoveries and wrong CRCs together
};

// Rows of memory that spare ones stand in for, or before the A100 pages out of use.
struct Repairs {
  Fact corrected = {}, uncorrected = {};  // by the kind of error that led to it
  bool pending = false;                   // until the GPU is reset
  bool failed = false;                    // no spare one was left
};

struct GpuFacts {
  uint64_t index = 0;        // NVML's
  std::string address = {};  // as the kernel writes it: "0000:17:00.0"; empty: not known
  std::string name = {};
  bool complete = false;  // all that is to be had follows; else not even asked
  std::vector<NvmlError> errors = {};
  Fact celsius = {}, slowdown_celsius = {};
  Fact milliwatts = {}, limit_milliwatts = {};
  Fact sm_mhz = {}, sm_max_mhz = {};
  Fact slowed_by = {};                              // bits: why clocks are below their highest
  Fact persistence = {};                            // 0, 1
  Fact ecc = {};                                    // 0, 1
  Fact corrected = {}, uncorrected = {};            // by ECC since the driver was loaded
  Fact corrected_ever = {}, uncorrected_ever = {};  // in its life
  std::optional<Repairs> rows = {}, pages = {};     // one of both
  std::vector<NvLink> links = {};
  std::optional<size_t> processes = {};
  Fact recovery = {};  // nvmlDeviceGpuRecoveryAction_t
};

struct NvmlTold {
  std::optional<NvmlError> error = {};  // of the library itself
  std::string driver = {}, nvml = {};   // versions
  Fact count = {};                      // of GPUs; none: it did not come that far
  std::vector<GpuFacts> gpus = {};      // that were begun with, in that order
  bool ended = false;                   // all were
};

NvmlTold parse_nvml(std::string_view output);

}  // namespace ff::validate

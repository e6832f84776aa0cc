// Parses the output of ff-gpu (format: ff_gpu.c). A driver library wrote it, maybe a broken one:
// malformed lines are ignored, and malformed values are unknown.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ff::validate {

using NvmlValue = std::optional<uint64_t>;

// A call that failed.
struct NvmlError {
  std::string call = {};  // "nvmlInit_v2"
  uint64_t code = 0;      // nvmlReturn_t; 0 for dlopen and dlsym
  std::string text = {};
};

struct NvLink {
  uint64_t number = 0;
  bool active = false;
  NvmlValue errors = {};  // replays, recoveries and CRC errors together
};

// Remapped memory rows, or retired pages before the A100.
struct MemoryRepairs {
  NvmlValue corrected = {}, uncorrected = {};  // by the kind of the error
  bool pending = false;                        // until the GPU is reset
  bool failed = false;                         // no spare row was left
};

struct GpuFacts {
  uint64_t index = 0;        // NVML index
  std::string address = {};  // in the form of the kernel: "0000:17:00.0"; empty: unknown
  std::string name = {};
  bool complete = false;  // all values follow; else the query stopped early
  std::vector<NvmlError> errors = {};
  NvmlValue celsius = {}, slowdown_celsius = {};
  NvmlValue milliwatts = {}, limit_milliwatts = {};
  NvmlValue sm_mhz = {}, sm_max_mhz = {};
  NvmlValue slowed_by = {};                              // bits: reasons for reduced clocks
  NvmlValue persistence = {};                            // 0, 1
  NvmlValue ecc = {};                                    // 0, 1
  NvmlValue corrected = {}, uncorrected = {};            // ECC errors since the driver was loaded
  NvmlValue corrected_ever = {}, uncorrected_ever = {};  // over its lifetime
  std::optional<MemoryRepairs> rows = {}, pages = {};    // either of them
  std::vector<NvLink> links = {};
  std::optional<size_t> processes = {};
  NvmlValue recovery = {};  // nvmlDeviceGpuRecoveryAction_t
};

struct NvmlReport {
  std::optional<NvmlError> error = {};  // of the library itself
  std::string driver = {}, nvml = {};   // versions
  NvmlValue count = {};                 // of GPUs; none: the query stopped before
  std::vector<GpuFacts> gpus = {};      // in the order of the output
  bool ended = false;                   // the output is complete
};

NvmlReport parse_nvml(std::string_view output);

// Values of one line; none, empty: it has none of this type.
NvmlValue line_number(const nlohmann::json& line, const char* name);
std::string line_text(const nlohmann::json& line, const char* name);
// "00000000:17:00.0" -> "0000:17:00.0": NVML writes domains with 8 digits, the kernel with at
// least 4.
std::string kernel_address(std::string text);

}  // namespace ff::validate

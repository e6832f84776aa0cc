// NVIDIA GPUs: those on the PCI bus, and what the driver library (NVML) reports about each. ff is
// static and cannot load that library, so a small program queries it (ff_gpu.c), which is embedded
// in ff; if it hangs or crashes, that is a finding like any other. The same program loads GPUs
// (gpu_load.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/pci.h"
#include "ops/validate/program.h"
#include "platform/base/result.h"

namespace ff::validate {

// The program, an ELF file.
std::string_view gpu_program();

// One run of the program.
struct GpuProgramRun {
  std::vector<std::string> arguments = {};
  std::vector<unsigned> cpus = {};  // that it may use; none: all
};

// Runs the program once for each, for at most `within_ns`: all at once, or one after the other. It
// runs from memory, or, if the machine forbids that, from a file in `context.scratch`. Errors:
// not_found if the machine cannot run dynamic programs, refused.
std::vector<Result<ProgramOutput>> run_gpu_program(const CheckContext& context,
                                                   const std::vector<GpuProgramRun>& runs,
                                                   bool at_once, int64_t within_ns);
// The same once, to query NVML.
Result<ProgramOutput> query_nvml(const CheckContext& context, int64_t within_ns);
Result<ProgramOutput> query_nvml_from_file(const CheckContext& context, int64_t within_ns);

// NVIDIA GPUs on the PCI bus, sorted by address.
std::vector<PciDevice> nvidia_gpus(const SystemTree& tree);

// Reports the findings of the program output, or why there is none. `gpus`: at least one.
void report_gpus(const CheckContext& context, const std::vector<PciDevice>& gpus,
                 const Result<ProgramOutput>& output);

void check_gpu_health(const CheckContext& context);

}  // namespace ff::validate

// GPUs of NVIDIA: those on PCI, and what the driver's library (NVML) says of each. ff is static and
// cannot load that library: a small program asks it (ff_gpu.c), which is built into ff, and whose
// hanging or crashing is a finding like any other.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/pci.h"
#include "ops/validate/program.h"
#include "platform/base/result.h"

namespace ff::validate {

// The program, an ELF file.
std::string_view gpu_program();

// Runs it for at most so long: from memory, and where the machine forbids that, from a file in
// `context.scratch`. Errors: not_found where the machine cannot run dynamic programs, refused.
Result<Said> ask_nvml(const Context& context, int64_t within_ns);
Result<Said> ask_nvml_from_file(const Context& context, int64_t within_ns);

// GPUs of NVIDIA that are on PCI, sorted by address.
std::vector<PciDevice> nvidia_gpus(const Tree& tree);

// Reports what the program said, or why it did not, of a machine with these GPUs: at least one.
void judge_gpus(const Context& context, const std::vector<PciDevice>& gpus,
                const Result<Said>& said);

void check_gpu_health(const Context& context);

}  // namespace ff::validate

// Findings about one GPU from NVML values: gpu.ecc, gpu.remap, gpu.throttle, gpu.temperature,
// gpu.nvlink, gpu.persistence, gpu.recovery. Unknown values are not reported.
#pragma once

#include <cstddef>
#include <string>

#include "ops/validate/check.h"
#include "ops/validate/gpu_facts.h"

namespace ff::validate {

// `links`: the number of active links of the GPU of this node with most. NVLink bridges of PCIe
// cards leave some links unused, the same number on all cards.
void report_gpu_state(const CheckContext& context, const std::string& part, const GpuFacts& gpu,
                      size_t links);

}  // namespace ff::validate

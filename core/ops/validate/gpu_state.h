// One GPU judged by what NVML tells of it: gpu.ecc, gpu.remap, gpu.throttle, gpu.temperature,
// gpu.nvlink, gpu.persistence, gpu.recovery. What a GPU does not tell of is not reported.
#pragma once

#include <cstddef>
#include <string>

#include "ops/validate/check.h"
#include "ops/validate/gpu_facts.h"

namespace ff::validate {

// `links`: that are active on that GPU of this node which has most. Bridges between GPUs in PCIe
// slots may leave some of them free, on all alike.
void judge_gpu(const Context& context, const std::string& part, const GpuFacts& gpu, size_t links);

}  // namespace ff::validate

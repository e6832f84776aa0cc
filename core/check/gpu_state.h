// One GPU judged by what NVML tells of it: gpu.ecc, gpu.remap, gpu.throttle, gpu.temperature,
// gpu.nvlink, gpu.persistence, gpu.recovery. What a GPU does not tell of is not reported.
#pragma once

#include <string>

#include "check/check.h"
#include "check/gpu_facts.h"

namespace ff::check {

void judge_gpu(const Context& context, const std::string& part, const GpuFacts& gpu);

}  // namespace ff::check

// Loads on NVIDIA GPUs: patterns in all free memory, products of matrices with known results, and
// copies against what the links can do. A program of its own runs each (ff_gpu_load.c): what hangs
// or ends with an error of the driver is a finding about that GPU, and no load of another one.
#pragma once

#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/gpu.h"
#include "ops/validate/gpu_load_facts.h"
#include "ops/validate/pci.h"

namespace ff::validate {

// Reports what the output of a load shows about the part "ADDRESS NAME" (gpu_load_results.cc).
using GpuLoadReporter = void (*)(const CheckContext& context, const std::string& part,
                                 const PciDevice& gpu, const GpuLoadReport& report);
void report_gpu_memory(const CheckContext& context, const std::string& part, const PciDevice& gpu,
                       const GpuLoadReport& report);
void report_gpu_products(const CheckContext& context, const std::string& part, const PciDevice& gpu,
                         const GpuLoadReport& report);
void report_gpu_copies(const CheckContext& context, const std::string& part, const PciDevice& gpu,
                       const GpuLoadReport& report);

struct GpuLoad {
  const char* check;  // "gpu.gemm"
  const char* mode;   // the first argument of the program
  // All GPUs at once, which also shows whether power and cooling suffice; copies would share links.
  bool at_once;
  GpuLoadReporter report;
  int64_t run_ns;     // about
  int64_t hang_ns;    // one kernel or copy takes much less
  int64_t within_ns;  // the whole program, with the start of the driver
};

// The output of the load on each of these GPUs, in their order.
std::vector<Result<ProgramOutput>> run_gpu_load(const CheckContext& context, const GpuLoad& load,
                                                const std::vector<PciDevice>& gpus);
// Reports the findings of the output of one GPU, or why there is none. `logged`: its Xids in the
// kernel log, which also has those of a GPU that does not answer any more.
void report_gpu_load(const CheckContext& context, const GpuLoad& load, const PciDevice& gpu,
                     const Result<ProgramOutput>& output, const std::vector<uint64_t>& logged);

// Of records of /dev/kmsg: the sequence number of the last one (0: none), and the Xids of the GPU
// at an address after such a number.
uint64_t last_record(const std::vector<std::string>& records);
std::vector<uint64_t> xids_after(const std::vector<std::string>& records, uint64_t sequence,
                                 std::string_view address);

void check_gpu_memory(const CheckContext& context);
void check_gpu_gemm(const CheckContext& context);
void check_gpu_copy(const CheckContext& context);

}  // namespace ff::validate

// gpu_load.cc: runs a load, and reports how it ended: hangs, errors of the driver, Xids, ECC
// errors.
#include "ops/validate/gpu_load.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>

#include "ops/validate/inventory.h"
#include "ops/validate/kernel_log.h"
#include "ops/validate/kernel_messages.h"
#include "ops/validate/load.h"
#include "ops/validate/xid.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

constexpr int64_t kHangNs = 20 * kSecond;
constexpr int64_t kStartNs = 35 * kSecond;  // of the driver, and the largest step
constexpr const char* kSeeLog =
    "See the kernel log for its Xid messages (ff validate --only log), then reset the GPU or "
    "restart the node; if it recurs, replace the GPU.";

std::string name_of(const PciDevice& gpu, const GpuLoadReport& report) {
  return fmt::format("{} {}", gpu.address, report.name.empty() ? gpu.name() : report.name);
}

// What says that something is broken: the GPU, its memory, its links. Other errors at the start,
// such as a device that a container does not have, say nothing about it.
bool is_of_hardware(uint64_t code) {
  constexpr uint64_t kEccUncorrectable = 214, kNvlinkUncorrectable = 220, kContained = 226;
  return code == kEccUncorrectable || code == kNvlinkUncorrectable || code == kContained;
}

bool is_start(const std::string& step) {
  constexpr std::array kSteps = {"NVML", "the driver", "the device", "its memory", "the kernels"};
  return step.empty() || std::ranges::find(kSteps, step) != kSteps.end();
}

void tell_failure(const CudaFailure& failure, const std::string& step, Finding& finding) {
  const std::string error =
      failure.name.empty() ? fmt::format("error {}", failure.code) : failure.name;
  finding.found = failure.code == 0 ? failure.text
                  : failure.text.empty()
                      ? fmt::format("{}: {}", failure.call, error)
                      : fmt::format("{}: {} ({})", failure.call, error, failure.text);
  if (failure.code != 0) finding.found += fmt::format(", in the step '{}'", step);
  const bool broken = is_of_hardware(failure.code) || !is_start(step);
  finding.verdict = broken ? Verdict::fail : Verdict::could_not_run;
  finding.hint =
      broken ? kSeeLog
      : failure.code == 0
          ? "Install a driver for CUDA 11 or later with its libraries."
          : "See whether the GPU works and is free: nvidia-smi. A container must have it.";
}

// How the load ended; nothing: as it should.
std::optional<Finding> end_of(const GpuLoad& load, const ProgramOutput& output,
                              const GpuLoadReport& report) {
  const bool crashed = !output.hung && WIFSIGNALED(output.status);
  if (output.ended_well() && report.ended) return std::nullopt;
  Finding finding{.name = load.check, .verdict = Verdict::fail, .hint = kSeeLog};
  if (report.failure) {
    tell_failure(*report.failure, report.step, finding);
  } else if (report.hung) {
    finding.found = fmt::format("hung: the step '{}' did not end within {}", report.step,
                                format_duration(load.hang_ns));
  } else if (output.hung) {
    finding.found = fmt::format("the driver hung in the step '{}'", report.step);
  } else if (crashed && WTERMSIG(output.status) == SIGKILL) {
    finding.verdict = Verdict::could_not_run;
    finding.found = "the program that loads it was killed";
    finding.hint = "See the kernel log: memory may have run out.";
  } else if (crashed) {
    finding.found = fmt::format("the driver crashed in the step '{}': {}", report.step,
                                ::strsignal(WTERMSIG(output.status)));
  } else {
    finding.verdict = Verdict::could_not_run;
    finding.found = "the program that loads it ended early";
    finding.hint = "It needs glibc 2.34 or later on this machine.";
  }
  return finding;
}

void report_load_xids(const CheckContext& context, const GpuLoad& load, const std::string& part,
                      const GpuLoadReport& report, const std::vector<uint64_t>& logged) {
  std::set<uint64_t> codes(report.xids.begin(), report.xids.end());
  codes.insert(logged.begin(), logged.end());
  for (const uint64_t code : codes) {
    const Xid* const xid = find_xid(static_cast<int>(std::min<uint64_t>(code, INT32_MAX)));
    Finding finding{.name = load.check,
                    .part = fmt::format("{}, Xid {}", part, code),
                    .verdict = Verdict::degraded};
    finding.found = fmt::format("Xid {} during the load", code);
    finding.expected = "none";
    finding.source = "NVML and the kernel log";
    finding.hint = "ff does not know this code: see the kernel log.";
    if (xid != nullptr) {
      finding.found += fmt::format(": {}", xid->about);
      // What a program may cause by itself: this one does not.
      finding.verdict = std::max(Verdict::degraded, xid_verdict(*xid));
      finding.hint = xid_hint(*xid);
    }
    context.report(std::move(finding));
  }
}

void report_load_ecc(const CheckContext& context, const GpuLoad& load, const std::string& part,
                     const GpuLoadReport& report) {
  if (report.ecc.size() < 2) return;
  const EccCount &first = report.ecc.front(), &last = report.ecc.back();
  const uint64_t corrected = last.corrected - std::min(first.corrected, last.corrected);
  const uint64_t uncorrected = last.uncorrected - std::min(first.uncorrected, last.uncorrected);
  if (corrected + uncorrected == 0) return;
  Finding finding{.name = load.check, .part = part + ", ECC"};
  finding.verdict = uncorrected > 0 ? Verdict::fail : Verdict::degraded;
  finding.found =
      fmt::format("{} corrected, {} uncorrected errors during the load", corrected, uncorrected);
  finding.expected = "none";
  finding.source = "NVML";
  finding.hint = uncorrected > 0
                     ? "Reset the GPU when it is idle, so that bad memory is taken out of use; if "
                       "errors continue, replace it."
                     : "Run the check again at level weekly; if errors continue, replace the GPU.";
  context.report(std::move(finding));
}

// Processors beside the GPU: memory that they allocate is beside it, too. None: unknown.
std::vector<unsigned> cpus_beside(const SystemTree& tree, const PciDevice& gpu) {
  const std::string device = io::join(kPciDevices, gpu.address);
  return parse_cpu_list(tree.maybe_text(device + "/local_cpulist").value_or(""));
}

// None where this user may not read them: then NVML alone tells Xids.
std::vector<std::string> kernel_records() {
  auto records = read_kernel_messages();
  return records ? std::move(*records) : std::vector<std::string>();
}

// "4,1234,5678901234,-;text": 1234.
uint64_t sequence_of(std::string_view record) {
  const auto fields = split(record.substr(0, record.find(';')), ',');
  return fields.size() < 2 ? 0 : parse_u64(fields[1]).value_or(0);
}

void check_load(const CheckContext& context, const GpuLoad& load) {
  const auto gpus = nvidia_gpus(context.tree);
  if (gpus.empty()) {
    return context.report(missing_finding(context, load.check, "gpu", "no NVIDIA GPU on PCI"));
  }
  if (!context.tree.is_machine()) {
    return context.report({.name = load.check,
                           .found = fmt::format("{} NVIDIA GPUs on PCI; a recorded tree has none "
                                                "to load",
                                                gpus.size()),
                           .hint = "Run it on the machine itself."});
  }
  const uint64_t before = last_record(kernel_records());
  const auto outputs = run_gpu_load(context, load, gpus);
  const std::vector<std::string> records = kernel_records();
  for (size_t i = 0; i < gpus.size(); i++) {
    report_gpu_load(context, load, gpus[i], outputs[i],
                    xids_after(records, before, gpus[i].address));
  }
}

GpuLoad load_of(const CheckContext& context, const char* check, const char* mode) {
  const int64_t run_ns = load_ns(context.level);
  return {.check = check,
          .mode = mode,
          .at_once = true,
          .report = report_gpu_memory,
          .run_ns = run_ns,
          .hang_ns = kHangNs,
          .within_ns = run_ns + kStartNs};
}

}  // namespace

std::vector<Result<ProgramOutput>> run_gpu_load(const CheckContext& context, const GpuLoad& load,
                                                const std::vector<PciDevice>& gpus) {
  std::vector<GpuProgramRun> runs;
  for (const PciDevice& gpu : gpus) {
    runs.push_back(
        {.arguments = {load.mode, gpu.address, fmt::format("{}", load.run_ns / kMillisecond),
                       fmt::format("{}", load.hang_ns / kMillisecond)},
         .cpus = cpus_beside(context.tree, gpu)});
  }
  return run_gpu_program(context, runs, load.at_once, load.within_ns);
}

void report_gpu_load(const CheckContext& context, const GpuLoad& load, const PciDevice& gpu,
                     const Result<ProgramOutput>& output, const std::vector<uint64_t>& logged) {
  if (!output) {
    return context.report(
        {.name = load.check,
         .part = fmt::format("{} {}", gpu.address, gpu.name()),
         .found = fmt::format("the program that loads it cannot run: {}", output.error().message),
         .hint = output.error().code == Errc::refused
                     ? "Allow programs in the folder for the run's own files."
                     : "It needs glibc 2.34 or later on this machine."});
  }
  const GpuLoadReport report = parse_gpu_load(output->output);
  const std::string part = name_of(gpu, report);
  report_load_xids(context, load, part, report, logged);
  report_load_ecc(context, load, part, report);
  if (auto end = end_of(load, *output, report)) {
    end->part = part;
    context.report(std::move(*end));
  }
  load.report(context, part, gpu, report);
}

uint64_t last_record(const std::vector<std::string>& records) {
  return records.empty() ? 0 : sequence_of(records.back());
}

std::vector<uint64_t> xids_after(const std::vector<std::string>& records, uint64_t sequence,
                                 std::string_view address) {
  std::vector<uint64_t> codes;
  for (const std::string& record : records) {
    if (sequence_of(record) <= sequence) continue;
    const auto line = parse_kmsg(record);
    const auto xid = line ? parse_xid(line->text) : std::nullopt;
    // The driver writes no function: "0000:3b:00".
    if (!xid || !address.starts_with(xid->device + ".")) continue;
    codes.push_back(static_cast<uint64_t>(xid->code));
  }
  return codes;
}

void check_gpu_memory(const CheckContext& context) {
  check_load(context, load_of(context, "gpu.memory", "memory"));
}

void check_gpu_gemm(const CheckContext& context) {
  GpuLoad load = load_of(context, "gpu.gemm", "gemm");
  load.report = report_gpu_products;
  check_load(context, load);
}

// Copies reach their speed at once: longer ones find no more. Peers take time for each pair.
void check_gpu_copy(const CheckContext& context) {
  const bool with_peers = context.level != RunLevel::quick;
  GpuLoad load = load_of(context, "gpu.copy", with_peers ? "peers" : "copy");
  load.report = report_gpu_copies;
  load.at_once = false;
  load.run_ns = std::min<int64_t>(load.run_ns, 4 * kSecond);
  load.within_ns = load.run_ns * 2 + kStartNs;
  check_load(context, load);
}

}  // namespace ff::validate

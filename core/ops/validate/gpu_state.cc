// gpu_state.cc: the meaning of each NVML value. Thresholds are those of NVIDIA: of the GPU, or of
// the documented actions for remapped rows and ECC errors.
#include "ops/validate/gpu_state.h"

#include <algorithm>
#include <array>

#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr const char* kNvml = "NVML";

Finding of_gpu(const char* name, const std::string& part) {
  return {.name = name, .part = part, .verdict = Verdict::pass, .source = kNvml};
}

double number(const NvmlValue& fact) { return static_cast<double>(fact.value_or(0)); }

void judge_ecc(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  if (!gpu.ecc) return;
  Finding finding = of_gpu("gpu.ecc", part);
  if (*gpu.ecc == 0) {
    finding.found = "ECC is off: memory errors are not detected";
    return context.report(std::move(finding));
  }
  if (!gpu.corrected || !gpu.uncorrected) {
    finding.verdict = Verdict::could_not_run;
    finding.found = "ECC is on, and its counters cannot be read";
    return context.report(std::move(finding));
  }
  finding.value = number(gpu.corrected) + number(gpu.uncorrected);
  const CounterDelta growth = counter_delta(context, finding);
  finding.found = fmt::format("{} corrected, {} uncorrected since the driver was loaded",
                              *gpu.corrected, *gpu.uncorrected);
  if (growth.since_run) finding.found += fmt::format(", {:.0f} of them new", growth.more);
  if (gpu.corrected_ever.value_or(0) + gpu.uncorrected_ever.value_or(0) > 0) {
    finding.found += fmt::format("; {} and {} in its life", gpu.corrected_ever.value_or(0),
                                 gpu.uncorrected_ever.value_or(0));
  }
  finding.expected = "none uncorrected, none new since the last run";
  if (*gpu.uncorrected > 0) {
    finding.verdict = Verdict::fail;
    finding.hint = "Reset the GPU when it is idle; if errors continue, contact support.";
  } else if (growth.since_run && growth.more > 0) {
    finding.verdict = Verdict::degraded;
    finding.hint = "If it continues, test the GPU memory.";
  }
  context.report(std::move(finding));
}

void judge_repairs(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  const std::optional<MemoryRepairs>& repairs = gpu.rows ? gpu.rows : gpu.pages;
  if (!repairs) return;
  const char* const what = gpu.rows ? "rows remapped" : "pages retired";
  Finding finding = of_gpu("gpu.remap", part);
  finding.value = number(repairs->corrected) + number(repairs->uncorrected);
  finding.found = fmt::format("{:.0f} {}, {} of them for uncorrected errors", *finding.value, what,
                              repairs->uncorrected.value_or(0));
  if (*finding.value == 0) finding.found = fmt::format("no {}", what);
  finding.expected = gpu.rows ? "none pending, none that failed" : "none pending";
  if (repairs->failed) {
    finding.verdict = Verdict::fail;
    finding.found += "; one had no spare row left";
    finding.hint = "Replace the GPU: NVIDIA accepts returns for failed remapping.";
  } else if (repairs->pending) {
    finding.verdict = Verdict::degraded;
    finding.found += "; one waits for a reset";
    finding.hint = "Reset the GPU when it is idle, so that bad memory is taken out of use.";
  } else if (repairs->uncorrected.value_or(0) > 0) {
    finding.found += " (they serve as well as before)";
  }
  context.report(std::move(finding));
}

// Reasons for reduced clocks of a GPU.
struct Reason {
  uint64_t bit;
  const char* about;
  Verdict verdict;
  const char* hint;
};
constexpr const char* kCooling = "Check its fans, heat sink and cooling.";
constexpr const char* kPower = "Check power supplies, their cables, and the power of the rack.";
constexpr std::array kReasons = {
    Reason{0x80, "power brake", Verdict::degraded, kPower},
    Reason{0x40, "heat (hardware)", Verdict::degraded, kCooling},
    Reason{0x20, "heat (driver)", Verdict::degraded, kCooling},
    Reason{0x08, "heat or power (hardware)", Verdict::degraded, kCooling},
    Reason{0x01, "idle", Verdict::pass, ""},
    Reason{0x02, "clocks that were set", Verdict::pass, ""},
    Reason{0x04, "power limit", Verdict::pass, ""},
    Reason{0x10, "others kept in step with", Verdict::pass, ""},
    Reason{0x100, "display", Verdict::pass, ""},
};

void judge_throttle(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  if (!gpu.slowed_by) return;
  Finding finding = of_gpu("gpu.throttle", part);
  finding.expected = "not slowed by heat or lack of power";
  uint64_t unknown = *gpu.slowed_by;
  std::vector<std::string> why;
  for (const Reason& reason : kReasons) {
    if ((*gpu.slowed_by & reason.bit) == 0) continue;
    unknown &= ~reason.bit;
    why.emplace_back(reason.about);
    finding.verdict = std::max(finding.verdict, reason.verdict);
    if (finding.hint.empty()) finding.hint = reason.hint;
  }
  if (unknown != 0) why.push_back(fmt::format("reasons {:#x}, unknown here", unknown));
  finding.found =
      why.empty() ? std::string("not slowed") : fmt::format("slowed by: {}", fmt::join(why, ", "));
  context.report(std::move(finding));
}

void judge_temperature(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  if (!gpu.celsius) return;
  Finding finding = of_gpu("gpu.temperature", part);
  finding.value = number(gpu.celsius);
  finding.unit = "°C";
  finding.found = fmt::format("{} °C", *gpu.celsius);
  if (gpu.milliwatts && gpu.limit_milliwatts) {
    finding.found += fmt::format(", {:.0f} of {:.0f} W", number(gpu.milliwatts) / 1000,
                                 number(gpu.limit_milliwatts) / 1000);
  }
  if (gpu.sm_mhz && gpu.sm_max_mhz) {
    finding.found += fmt::format(", {} of {} MHz", *gpu.sm_mhz, *gpu.sm_max_mhz);
  }
  if (gpu.processes) finding.found += fmt::format(", programs on it: {}", *gpu.processes);
  if (gpu.slowdown_celsius) {
    finding.expected = fmt::format("below {} °C, where it slows down", *gpu.slowdown_celsius);
    if (*gpu.celsius >= *gpu.slowdown_celsius) {
      finding.verdict = Verdict::degraded;
      finding.hint = kCooling;
    }
  }
  context.report(std::move(finding));
}

// Nothing if no GPU has an NVLink peer.
void judge_links(const CheckContext& context, const std::string& part, const GpuFacts& gpu,
                 size_t most) {
  std::vector<uint64_t> down;
  NvmlValue errors;
  for (const NvLink& link : gpu.links) {
    if (!link.active) down.push_back(link.number);
    if (link.errors) errors = errors.value_or(0) + *link.errors;
  }
  const size_t active = gpu.links.size() - down.size();
  if (active == 0 && most == 0) return;
  Finding finding = of_gpu("gpu.nvlink", part);
  finding.found = fmt::format("{} of {} links active", active, gpu.links.size());
  finding.expected = fmt::format("{} active, as on others; no errors since the last run", most);
  CounterDelta growth;
  if (errors) {
    finding.value = number(errors);
    growth = counter_delta(context, finding);
    finding.found += growth.since_run ? fmt::format(", {:.0f} more errors", growth.more)
                                      : fmt::format(", {} errors so far", *errors);
  }
  if (active < most) {
    finding.verdict = Verdict::degraded;
    finding.found += fmt::format("; down: {}", fmt::join(down, ", "));
    finding.hint = "Reset the GPUs of this node together; if it stays down, check bridge or board.";
  } else if (growth.since_run && growth.more > 0) {
    finding.verdict = Verdict::degraded;
    finding.hint = "Stress-test the links of the GPU; drain the node if it recurs.";
  }
  context.report(std::move(finding));
}

void judge_persistence(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  if (!gpu.persistence) return;
  Finding finding = of_gpu("gpu.persistence", part);
  finding.found = *gpu.persistence != 0
                      ? "on"
                      : "off: unless nvidia-persistenced runs, each first program waits for it";
  context.report(std::move(finding));
}

void judge_recovery(const CheckContext& context, const std::string& part, const GpuFacts& gpu) {
  struct Action {
    const char* about;
    Verdict verdict;
    const char* hint;
  };
  constexpr std::array kActions = {
      Action{"no action required", Verdict::pass, ""},
      Action{"it needs a reset", Verdict::fail, "End its programs and reset the GPU."},
      Action{"it needs a restart of the node", Verdict::fail, "Restart the node."},
      Action{"traffic between GPUs must stop", Verdict::fail,
             "End all programs that use NVLink on this node, then run this again."},
      Action{"a part of it is disabled until a reset", Verdict::degraded,
             "Let its programs end, then reset the GPU."},
  };
  if (!gpu.recovery) return;
  Finding finding = of_gpu("gpu.recovery", part);
  finding.source = "the driver";
  finding.expected = kActions[0].about;
  if (*gpu.recovery < kActions.size()) {
    const Action& action = kActions[*gpu.recovery];
    finding.found = action.about;
    finding.verdict = action.verdict;
    finding.hint = action.hint;
  } else {
    finding.found = fmt::format("action {}, unknown here", *gpu.recovery);
    finding.verdict = Verdict::degraded;
    finding.hint = "See nvidia-smi -q for the required action (GPU Recovery Action).";
  }
  context.report(std::move(finding));
}

}  // namespace

void report_gpu_state(const CheckContext& context, const std::string& part, const GpuFacts& gpu,
                      size_t links) {
  judge_ecc(context, part, gpu);
  judge_repairs(context, part, gpu);
  judge_throttle(context, part, gpu);
  judge_temperature(context, part, gpu);
  judge_links(context, part, gpu, links);
  judge_persistence(context, part, gpu);
  judge_recovery(context, part, gpu);
}

}  // namespace ff::validate

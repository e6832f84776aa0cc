// gpu_load_results.cc: what memory, products and copies of a GPU say about it.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "ops/validate/gpu_load.h"
#include "platform/base/text.h"
#include "platform/base/units.h"

namespace ff::validate {

namespace {

constexpr const char* kReplaceGpu =
    "Take the GPU out of use, and do not trust results of this node; contact support.";
// Of the bandwidth of a link or of memory: protocols and refreshes take the rest. A healthy link
// has 0.78 to 0.88 of it.
constexpr double kLinkShare = 0.7, kMemoryShare = 0.6;
constexpr uint64_t kGpuSide = 256;  // of the matrices

double seconds_in(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

std::string where_found(const GpuWrong& wrong) {
  return wrong.processor ? fmt::format(" on multiprocessor {}", *wrong.processor) : "";
}

// The bits of a double, in hexadecimal; as they are where they are none.
std::string number_of_bits(const std::string& digits) {
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  if (error != std::errc()) return digits;
  return fmt::format("{:.17g}", std::bit_cast<double>(bits));
}

std::string ecc_text(const GpuLoadReport& report) {
  return report.ecc.size() < 2 ? "; ECC is off or unknown" : "";
}

const GpuWrong* first_wrong(const GpuLoadReport& report, std::string_view step) {
  const auto found = std::ranges::find_if(
      report.wrong, [&](const GpuWrong& one) { return step.empty() || one.step == step; });
  return found == report.wrong.end() ? nullptr : &*found;
}

// GB/s of one lane by the generation of PCI Express, after its line code; 0: unknown.
double lane_rate(uint64_t generation) {
  constexpr std::array kRates = {0.0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  return generation < kRates.size() ? kRates[generation] : 0;
}

std::string link_text(uint64_t generation, uint64_t lanes) {
  return fmt::format("PCIe {}.0 x{}", generation, lanes);
}

// Fewer lanes or a lower generation than both ends have, while the link works.
void report_loaded_link(const CheckContext& context, const std::string& part, const GpuLink& link) {
  if (!link.generation || !link.lanes || !link.generation_max || !link.lanes_max) return;
  Finding finding{.name = "gpu.copy", .part = part + ", link", .verdict = Verdict::pass};
  finding.found = link_text(*link.generation, *link.lanes) + " under load";
  finding.expected = link_text(*link.generation_max, *link.lanes_max);
  finding.source = "NVML";
  if (*link.generation < *link.generation_max || *link.lanes < *link.lanes_max) {
    finding.verdict = Verdict::degraded;
    finding.hint =
        "Reseat the card or its riser and check the settings of the slot; then replace the card "
        "or the board.";
  }
  context.report(std::move(finding));
}

// The bandwidth that a copy could have at most, and whose; none: unknown.
struct CopyBound {
  double rate = 0;
  double share = 0;  // of it, that a sound machine has
  std::string of = {};
};

CopyBound bound_of(const GpuCopy& copy, const GpuLoadReport& report) {
  if (copy.direction == "to-peer" && report.nvlink_mbps) {
    const auto to_peer = std::ranges::count_if(
        report.nvlinks, [&](const auto& link) { return link.active && link.remote == copy.peer; });
    const auto active = std::ranges::count(report.nvlinks, true, &LoadedNvLink::active);
    // Without direct links to any GPU, all of them lead to switches.
    const bool direct = std::ranges::any_of(report.nvlinks, [&](const LoadedNvLink& link) {
      return std::ranges::any_of(report.copies,
                                 [&](const auto& one) { return one.peer == link.remote; });
    });
    const auto links = direct ? to_peer : active;
    return {.rate = static_cast<double>(links) * static_cast<double>(*report.nvlink_mbps) * 1e6,
            .share = kLinkShare,
            .of = fmt::format("{} NVLinks", links)};
  }
  if (!report.link) return {};
  const GpuLink& link = *report.link;
  if (copy.direction == "on-device" && link.memory_bits && link.memory_mhz) {
    return {.rate = 2e6 * static_cast<double>(*link.memory_mhz) *
                    static_cast<double>(*link.memory_bits) / 8,
            .share = kMemoryShare,
            .of = "its memory"};
  }
  const bool one_way = copy.direction == "to-device" || copy.direction == "to-host";
  if (one_way && link.generation && link.lanes) {
    return {.rate = lane_rate(*link.generation) * static_cast<double>(*link.lanes),
            .share = kLinkShare,
            .of = link_text(*link.generation, *link.lanes)};
  }
  return {};
}

void report_copy(const CheckContext& context, const std::string& part, const PciDevice& gpu,
                 const GpuCopy& copy, const GpuLoadReport& report) {
  Finding finding{.name = "gpu.copy", .part = fmt::format("{} {}", part, copy.direction)};
  if (!copy.peer.empty()) finding.part += " " + copy.peer;
  if (copy.rate() <= 0) {
    finding.found = "its time is unknown";
    finding.hint = "Run it again: ff validate --only gpu.copy";
    return context.report(std::move(finding));
  }
  finding.verdict = Verdict::pass;
  finding.value = copy.rate();
  finding.unit = "B/s";
  finding.better = Better::higher;
  finding.found = format_rate(copy.rate());
  const bool of_host = copy.direction != "on-device" && copy.peer.empty();
  if (of_host && gpu.numa_node) finding.found += fmt::format(", NUMA node {}", *gpu.numa_node);
  const CopyBound bound = bound_of(copy, report);
  if (bound.rate > 0) {
    finding.expected = fmt::format("{:.0f} % of {}", 100 * bound.share, format_rate(bound.rate));
    finding.source = bound.of;
    if (copy.rate() < bound.share * bound.rate) {
      finding.verdict = Verdict::degraded;
      finding.hint =
          copy.direction == "on-device" ? "Check the clocks of its memory: nvidia-smi -q -d CLOCK"
          : copy.direction == "to-peer"
              ? "See gpu.nvlink and the fabric manager; reset the GPUs of this node together."
              : "See pci.link, pci.aer and pci.peer for its link; check the settings of the slot.";
    }
  }
  context.report(std::move(finding));
}

void report_loaded_nvlinks(const CheckContext& context, const std::string& part,
                           const GpuLoadReport& report) {
  for (const LoadedNvLink& link : report.nvlinks) {
    if (link.errors == 0) continue;
    Finding finding{.name = "gpu.copy", .part = fmt::format("{}, NVLink {}", part, link.number)};
    finding.verdict = Verdict::degraded;
    finding.found = fmt::format("{} errors during the load", link.errors);
    if (!link.remote.empty()) finding.found += fmt::format("; it leads to {}", link.remote);
    finding.expected = "none";
    finding.source = "NVML";
    finding.hint = "Reset the GPUs of this node together; if errors continue, drain the node.";
    context.report(std::move(finding));
  }
}

}  // namespace

void report_gpu_memory(const CheckContext& context, const std::string& part, const PciDevice&,
                       const GpuLoadReport& report) {
  const GpuWrong* const wrong = first_wrong(report, "");
  if (!report.memory && wrong == nullptr) return;  // it ended before, which is reported
  const GpuMemoryTest test =
      report.memory.value_or(GpuMemoryTest{.passes = 1, .wrong = report.wrong.size()});
  Finding finding{.name = "gpu.memory", .part = part, .verdict = Verdict::pass};
  finding.value = static_cast<double>(test.wrong);
  finding.expected = "every bit as it was written";
  finding.source = "5 patterns and their inverses";
  finding.found = fmt::format("{} of free memory, {} passes, no wrong word",
                              format_size(test.bytes), test.passes) +
                  ecc_text(report);
  if (test.wrong > 0) {
    finding.verdict = Verdict::fail;
    finding.found = fmt::format("{} wrong words", test.wrong);
    if (test.bytes > 0) finding.found += fmt::format(" in {}", format_size(test.bytes));
    if (wrong != nullptr) {
      finding.found += fmt::format(", first at {:#x}: {} where {} was written ({}){}", wrong->at,
                                   wrong->got, wrong->expected, wrong->step, where_found(*wrong));
    }
    finding.hint = kReplaceGpu;
  } else if (test.passes == 0) {
    finding.verdict = Verdict::could_not_run;
    finding.found = "no pass ended";
    finding.hint = "Run it again: ff validate --only gpu.memory";
  }
  context.report(std::move(finding));
}

void report_gpu_products(const CheckContext& context, const std::string& part, const PciDevice&,
                         const GpuLoadReport& report) {
  for (const GpuProducts& run : report.products) {
    Finding finding{.name = "gpu.gemm", .part = fmt::format("{} {}", part, run.type)};
    finding.expected = run.golden;
    finding.source = "the known digest of the product";
    const GpuWrong* const wrong = first_wrong(report, run.type);
    const double seconds = std::max(seconds_in(run.nanoseconds), 1e-9);
    if (run.host != run.golden || run.golden.empty()) {
      finding.found = fmt::format("the processor of this machine computed {}", run.host);
      finding.hint = "Check it with cpu.kernels.";
    } else if (run.wrong > 0 || run.digest != run.golden) {
      finding.verdict = Verdict::fail;
      finding.found = fmt::format("{} wrong elements, digest {}", run.wrong, run.digest);
      if (wrong != nullptr) {
        finding.found +=
            fmt::format("; first in row {}, column {}{}: {} instead of {}", wrong->at / kGpuSide,
                        wrong->at % kGpuSide, where_found(*wrong), number_of_bits(wrong->got),
                        number_of_bits(wrong->expected));
      }
      finding.hint = kReplaceGpu;
    } else {
      finding.verdict = Verdict::pass;
      finding.value = static_cast<double>(run.operations) / seconds;
      finding.unit = run.type == "int8" ? "OP/s" : "FLOP/s";
      finding.better = Better::higher;
      finding.found =
          fmt::format("{} right tiles of products, {}, factors in {} of memory", run.products,
                      value_text(*finding.value, finding.unit), format_size(run.bytes));
    }
    context.report(std::move(finding));
  }
}

void report_gpu_copies(const CheckContext& context, const std::string& part, const PciDevice& gpu,
                       const GpuLoadReport& report) {
  if (report.copies.empty()) return;
  if (report.link) report_loaded_link(context, part, *report.link);
  for (const GpuCopy& copy : report.copies) report_copy(context, part, gpu, copy, report);
  report_loaded_nvlinks(context, part, report);
  const GpuWrong* const wrong = first_wrong(report, "copies");
  if (wrong == nullptr) return;
  Finding finding{.name = "gpu.copy", .part = part, .verdict = Verdict::fail};
  finding.found = fmt::format("a copy changed bytes, first at {:#x}: {} where {} was copied",
                              wrong->at, wrong->got, wrong->expected);
  finding.expected = "every byte as it was";
  finding.hint = kReplaceGpu;
  context.report(std::move(finding));
}

}  // namespace ff::validate

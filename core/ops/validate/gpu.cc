// gpu.cc: compares the GPUs of NVML with those on PCI, and reports where the query stopped.
#include "ops/validate/gpu.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "ops/validate/gpu_facts.h"
#include "ops/validate/gpu_state.h"
#include "ops/validate/inventory.h"
#include "ops/validate/xid.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr uint32_t kNvidia = 0x10de;
constexpr int64_t kWithinNs = 10 * kSecond;
constexpr const char* kDriver = "See the kernel log, and check the driver: nvidia-smi";
// nvmlReturn_t
constexpr uint64_t kNoPermission = 4, kNotLoaded = 9, kNoLibrary = 12, kLost = 15,
                   kResetRequired = 16, kForbidden = 17;

std::string text_of_error(const NvmlError& error) {
  const std::string text = error.text.empty() ? fmt::format("error {}", error.code) : error.text;
  return error.code == 0 ? text : fmt::format("{}: {}", error.call, text);
}

size_t active_links(const GpuFacts& gpu) {
  return static_cast<size_t>(std::ranges::count(gpu.links, true, &NvLink::active));
}

// Compares the NVML report with the GPUs on PCI.
class Gpus {
 public:
  Gpus(const CheckContext& context, const std::vector<PciDevice>& on_pci,
       const ProgramOutput& output)
      : context_(context), on_pci_(on_pci), output_(output), report_(parse_nvml(output.output)) {
    for (const PciDevice& device : on_pci) {
      const bool known =
          std::ranges::find(report_.gpus, device.address, &GpuFacts::address) != report_.gpus.end();
      if (!known) not_named_.push_back(device.address);
    }
    nameless_ = static_cast<size_t>(
        std::ranges::count_if(report_.gpus, [](const auto& gpu) { return gpu.address.empty(); }));
  }

  void report() const {
    if (!report_.count && report_.error) return report_no_nvml();
    report_end();
    if (report_.count) report_count();
    size_t links = 0;
    for (const GpuFacts& gpu : report_.gpus) links = std::max(links, active_links(gpu));
    for (const GpuFacts& gpu : report_.gpus) report_gpu(gpu, links);
  }

 private:
  bool came_to_the_end() const { return output_.ended_well() && report_.ended; }

  // The GPU that was being queried when the output ended; null: none.
  const GpuFacts* last() const {
    if (report_.ended || report_.gpus.empty() || report_.gpus.back().complete) return nullptr;
    return &report_.gpus.back();
  }

  // The address of an unnamed GPU, if only one is possible.
  std::string address_of(const GpuFacts& gpu) const {
    if (!gpu.address.empty()) return gpu.address;
    const bool only_one = nameless_ == 1 && not_named_.size() == 1 && report_.count &&
                          report_.gpus.size() == *report_.count;
    return only_one ? not_named_.front() : "";
  }

  std::string part_of(const GpuFacts& gpu) const {
    const std::string address = address_of(gpu);
    if (address.empty()) return fmt::format("GPU {} of NVML", gpu.index);
    const auto device = std::ranges::find(on_pci_, address, &PciDevice::address);
    const bool unnamed = gpu.name.empty() && device != on_pci_.end();
    return fmt::format("{} {}", address, unnamed ? device->name() : gpu.name);
  }

  void report_no_nvml() const {
    const NvmlError& error = *report_.error;
    Finding finding{.name = "gpu.health"};
    finding.found =
        fmt::format("{} NVIDIA GPUs on PCI, and no NVML: {}", on_pci_.size(), text_of_error(error));
    switch (error.code) {
      case 0:
      case kNoLibrary: finding.hint = "Install the NVIDIA driver with its libraries."; break;
      case kNotLoaded:
        finding.hint = "Load the NVIDIA driver (modprobe nvidia), or find out why it is missing.";
        break;
      case kNoPermission: finding.hint = "Run it as root."; break;
      default:
        finding.verdict = Verdict::fail;
        finding.hint =
            "Driver and library must have the same version: restart the node after an "
            "update, and see the kernel log.";
    }
    context_.report(std::move(finding));
  }

  // Nothing: the program ended normally.
  void report_end() const {
    if (came_to_the_end()) return;
    const GpuFacts* const gpu = last();
    Finding finding{.name = "gpu.health", .part = gpu == nullptr ? "" : part_of(*gpu)};
    const bool crashed = !output_.hung && WIFSIGNALED(output_.status);
    if (output_.hung) {
      finding.verdict = Verdict::fail;
      finding.found = "NVML hung";
      finding.hint = kDriver;
    } else if (crashed && WTERMSIG(output_.status) == SIGKILL) {
      finding.found = "the program that queries NVML was killed";
      finding.hint = "See the kernel log: memory may have run out.";
    } else if (crashed) {
      finding.verdict = Verdict::fail;
      finding.found = fmt::format("NVML crashed: {}", ::strsignal(WTERMSIG(output_.status)));
      finding.hint = kDriver;
    } else {
      finding.found = "the program that queries NVML ended early";
      finding.hint = "It needs glibc 2.34 or later on this machine.";
    }
    if (gpu != nullptr) {
      finding.found += " when queried about this GPU";
    } else {
      finding.found += report_.ended   ? " when it was closed"
                       : report_.count ? " between two GPUs"
                                       : " before it reported a GPU";
    }
    const uint64_t more = report_.count.value_or(0) -
                          std::min(report_.count.value_or(0), uint64_t{report_.gpus.size()});
    if (more > 0) finding.found += fmt::format("; {} more were not queried", more);
    context_.report(std::move(finding));
  }

  void report_count() const {
    Finding finding{.name = "gpu.count"};
    finding.value = static_cast<double>(*report_.count);
    finding.found = fmt::format("{} GPUs, driver {}, NVML {}", *report_.count,
                                report_.driver.empty() ? "unknown" : report_.driver,
                                report_.nvml.empty() ? "unknown" : report_.nvml);
    finding.expected = fmt::format("{} GPUs", on_pci_.size());
    finding.source = "PCI";
    const bool all_named = nameless_ == 0 && report_.gpus.size() == *report_.count;
    const bool missing = *report_.count < on_pci_.size() || (all_named && !not_named_.empty());
    finding.verdict = missing ? Verdict::fail : Verdict::pass;
    if (missing) {
      if (!not_named_.empty()) {
        finding.found += fmt::format(
            "; {}{}", all_named ? "missing: " : "missing some of: ", fmt::join(not_named_, ", "));
      }
      finding.hint =
          "Search the kernel log for its address; restart the node. (A container, "
          "or a virtual machine that owns the GPU, hides it, too.)";
    }
    context_.report(std::move(finding));
  }

  void report_gpu(const GpuFacts& gpu, size_t links) const {
    const std::string part = part_of(gpu);
    if (!gpu.errors.empty()) report_errors(gpu, part);
    if (gpu.complete) return report_gpu_state(context_, part, gpu, links);
    if (!gpu.errors.empty() || &gpu == last()) return;
    context_.report(
        {.name = "gpu.health", .part = part, .found = "NVML returned malformed values"});
  }

  void report_errors(const GpuFacts& gpu, const std::string& part) const {
    // The worst finding decides.
    const auto rank = [](const NvmlError& error) {
      return error.code == kLost ? 2 : error.code == kResetRequired ? 1 : 0;
    };
    const NvmlError& worst = *std::ranges::max_element(gpu.errors, {}, rank);
    Finding finding{.name = "gpu.health", .part = part, .found = text_of_error(worst)};
    finding.source = "NVML";
    if (gpu.errors.size() > 1) {
      finding.found += fmt::format(", and {} calls more that failed", gpu.errors.size() - 1);
    }
    if (address_of(gpu).empty() && !not_named_.empty()) {
      finding.found += fmt::format("; it is one of {}", fmt::join(not_named_, ", "));
    }
    const bool forbidden = worst.code == kNoPermission || worst.code == kForbidden;
    if (worst.code == kLost) {
      finding.verdict = Verdict::fail;
      finding.hint = "It fell off the bus (Xid 79 in the kernel's log). " + xid_hint(*find_xid(79));
    } else if (worst.code == kResetRequired) {
      finding.verdict = Verdict::fail;
      finding.hint = "Reset the GPU or restart the node; if it recurs, contact support.";
    } else if (forbidden) {
      finding.hint = "Run it as root, outside of containers.";
    } else if (!gpu.complete) {
      // NVML gives no handle, so programs cannot use it either.
      finding.verdict = Verdict::fail;
      finding.hint = kDriver;
    } else {
      finding.hint = kDriver;
    }
    context_.report(std::move(finding));
  }

  const CheckContext& context_;
  const std::vector<PciDevice>& on_pci_;
  const ProgramOutput& output_;
  const NvmlReport report_;
  std::vector<std::string> not_named_;  // on PCI, and unknown to NVML
  size_t nameless_ = 0;                 // of NVML, without an address
};

}  // namespace

std::vector<PciDevice> nvidia_gpus(const SystemTree& tree) {
  std::vector<PciDevice> gpus = pci_devices(tree);
  std::erase_if(gpus, [](const PciDevice& device) {
    return device.kind != PciKind::gpu || device.vendor != kNvidia;
  });
  return gpus;
}

void report_gpus(const CheckContext& context, const std::vector<PciDevice>& gpus,
                 const Result<ProgramOutput>& output) {
  if (output) return Gpus(context, gpus, *output).report();
  Finding finding{.name = "gpu.health"};
  finding.found =
      fmt::format("{} NVIDIA GPUs on PCI, and the program that asks NVML cannot run: {}",
                  gpus.size(), output.error().message);
  finding.hint = output.error().code == Errc::refused
                     ? "Allow programs in the folder for the run's own files."
                     : "It needs glibc 2.34 or later on this machine.";
  context.report(std::move(finding));
}

void check_gpu_health(const CheckContext& context) {
  const auto gpus = nvidia_gpus(context.tree);
  if (gpus.empty()) {
    return context.report(missing_finding(context, "gpu.health", "gpu", "no NVIDIA GPU on PCI"));
  }
  if (!context.tree.is_machine()) {
    return context.report(
        {.name = "gpu.health",
         .found = fmt::format("{} NVIDIA GPUs on PCI; a recorded tree has no answers of NVML",
                              gpus.size()),
         .hint = "Run it on the machine itself."});
  }
  report_gpus(context, gpus, query_nvml(context, kWithinNs));
}

}  // namespace ff::validate

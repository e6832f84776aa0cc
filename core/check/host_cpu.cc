// host_cpu.cc: which processors there are, how they are driven, and what has slowed them down.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "check/host.h"
#include "check/inventory.h"

namespace ff::check {

namespace {

constexpr const char* kCpus = "/sys/devices/system/cpu";

std::string cpu_dir(unsigned cpu) { return fmt::format("{}/cpu{}", kCpus, cpu); }

std::string text_of(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// "1-3, 5": so that a hundred cores fit into a line.
std::string ranges(const std::vector<unsigned>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) last++;
    if (!text.empty()) text += ", ";
    text +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

CpuFacts cpu_facts(const Tree& tree) {
  CpuFacts facts;
  std::set<std::string> sockets;
  const std::string text = tree.maybe_text("/proc/cpuinfo").value_or("");
  for (const std::string_view line : split(text, '\n')) {
    const size_t colon = line.find(": ");
    if (colon == line.npos) continue;
    const std::string value = printable(line.substr(colon + 2));
    if (line.starts_with("model name")) facts.models.insert(value);
    if (line.starts_with("microcode")) facts.microcode.insert(value);
    if (line.starts_with("physical id")) sockets.insert(value);
  }
  facts.sockets = std::max<size_t>(sockets.size(), 1);
  facts.present = parse_list(tree.maybe_text(fmt::format("{}/present", kCpus)).value_or(""));
  facts.online = parse_list(tree.maybe_text(fmt::format("{}/online", kCpus)).value_or(""));
  for (const unsigned cpu : facts.online) {
    facts.counts_throttling |= tree.exists(cpu_dir(cpu) + "/thermal_throttle");
    facts.has_cpufreq |= tree.exists(cpu_dir(cpu) + "/cpufreq/scaling_governor");
  }
  return facts;
}

void check_host_cpu(const Context& context) {
  const CpuFacts facts = cpu_facts(context.tree);
  Finding finding{.name = "host.cpu"};
  if (facts.online.empty() || facts.present.empty() || facts.models.empty()) {
    finding.found = "/proc/cpuinfo or /sys/devices/system/cpu cannot be read";
    return context.report(std::move(finding));
  }
  std::vector<unsigned> missing;
  std::ranges::set_difference(facts.present, facts.online, std::back_inserter(missing));
  finding.value = static_cast<double>(facts.online.size());
  finding.found = fmt::format("{} of {} cores online, {} sockets, {}", facts.online.size(),
                              facts.present.size(), facts.sockets, text_of(facts.models));
  finding.expected = "all that are present, of one model and microcode";
  finding.source = "sysfs";
  finding.verdict = Verdict::pass;
  if (!missing.empty()) {
    finding.verdict = Verdict::degraded;
    finding.found += ", offline: " + ranges(missing);
    finding.hint =
        "Bring them online (echo 1 > /sys/devices/system/cpu/cpuN/online), or look in "
        "the kernel's log for what took them out.";
  } else if (facts.models.size() > 1 || facts.microcode.size() > 1) {
    finding.verdict = Verdict::degraded;
    finding.found += ", microcode " + text_of(facts.microcode);
    finding.hint = "Update the firmware, so that all sockets load the same microcode.";
  }
  context.report(std::move(finding));
}

void check_host_throttle(const Context& context) {
  uint64_t core = 0, package = 0;
  bool any = false;
  for (const unsigned cpu : cpu_facts(context.tree).online) {
    const std::string at = cpu_dir(cpu) + "/thermal_throttle/";
    const auto cores = context.tree.maybe_number(at + "core_throttle_count");
    const auto packages = context.tree.maybe_number(at + "package_throttle_count");
    any |= cores || packages;
    core += static_cast<uint64_t>(std::max(cores.value_or(0), 0.0));
    // Every core of a package shows the package's.
    package = std::max(package, static_cast<uint64_t>(std::max(packages.value_or(0), 0.0)));
  }
  if (!any) {
    return context.report(
        nothing_of(context, "host.throttle", "throttle",
                   "no counters of thermal throttling (a guest, or not Intel's)"));
  }
  Finding finding{.name = "host.throttle"};
  finding.value = static_cast<double>(core + package);
  const Growth growth = growth_of(context, finding);
  finding.found = fmt::format("slowed down by heat {:.0f} times {}", growth.more, growth.since());
  finding.expected = "never";
  finding.source = "the processors' counters";
  finding.verdict = growth.more > 0 ? Verdict::degraded : Verdict::pass;
  if (growth.more > 0) finding.hint = "Look at fans, heat sinks, filters and the room.";
  context.report(std::move(finding));
}

void check_host_frequency(const Context& context) {
  std::map<std::string, size_t> governors;
  std::vector<unsigned> limited;
  double least_khz = 0, rated_khz = 0;
  for (const unsigned cpu : cpu_facts(context.tree).online) {
    const std::string at = cpu_dir(cpu) + "/cpufreq/";
    const auto governor = context.tree.maybe_text(at + "scaling_governor");
    if (governor) governors[printable(*governor)]++;
    const auto allowed = context.tree.maybe_number(at + "scaling_max_freq");
    const auto can = context.tree.maybe_number(at + "cpuinfo_max_freq");
    constexpr double kLimited = 0.95;
    if (!allowed || !can || *allowed >= kLimited * *can) continue;
    limited.push_back(cpu);
    if (least_khz == 0 || *allowed < least_khz) {
      least_khz = *allowed;
      rated_khz = *can;
    }
  }
  if (governors.empty()) {
    return context.report(nothing_of(context, "host.frequency", "cpufreq",
                                     "the kernel does not drive the processors' frequency here"));
  }
  Finding finding{.name = "host.frequency", .verdict = Verdict::pass};
  std::vector<std::string> parts;
  for (const auto& [name, count] : governors) parts.push_back(fmt::format("{} on {}", name, count));
  finding.found = fmt::format("{} cores", fmt::join(parts, ", "));
  finding.expected = "full frequency allowed; governor performance, or one that follows the load";
  finding.source = "cpufreq";
  // With intel_pstate's own governors, powersave follows the load.
  const bool slow =
      governors.contains("powersave") &&
      context.tree.maybe_text("/sys/devices/system/cpu/intel_pstate/status") != "active";
  if (slow || governors.size() > 1) {
    finding.verdict = Verdict::degraded;
    finding.hint = "cpupower frequency-set -g performance";
  }
  if (!limited.empty()) {
    finding.verdict = Verdict::degraded;
    finding.found += fmt::format(", limited to {:.2f} of {:.2f} GHz on {}", least_khz / 1e6,
                                 rated_khz / 1e6, ranges(limited));
    finding.hint = "Look at power and thermal limits of the firmware, and at power supplies.";
  }
  context.report(std::move(finding));
}

}  // namespace ff::check

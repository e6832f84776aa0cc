// host_cpu.cc: processors, frequency control and thermal throttling.
#include <algorithm>
#include <array>
#include <map>

#include "ops/validate/host.h"
#include "ops/validate/inventory.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr const char* kCpus = "/sys/devices/system/cpu";
constexpr const char* kProcAndSysMounted = "Check that /proc and /sys are mounted here.";

std::string cpu_dir(unsigned cpu) { return fmt::format("{}/cpu{}", kCpus, cpu); }

std::string text_of(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

// Ranges, "1-3, 5", so that a hundred cores fit into a line.
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

// Whether this many cores were online when the node was adopted.
bool was_adopted(const CheckContext& context, size_t online) {
  if (!context.inventory) return false;
  const auto found = context.inventory->find("cores");
  return found != context.inventory->end() && found->second == fmt::format("{}", online);
}

// Throttle counts of each online core and socket.
struct Throttling {
  uint64_t times = 0;
  bool any = false;
  std::vector<unsigned> unread = {};
};

Throttling throttling(const SystemTree& tree) {
  Throttling found;
  uint64_t package = 0;
  std::vector<unsigned> no_package;
  const std::vector<unsigned> online = cpu_facts(tree).online;
  for (const unsigned cpu : online) {
    const std::string at = cpu_dir(cpu) + "/thermal_throttle/";
    const auto core = tree.maybe_number(at + "core_throttle_count");
    const auto socket = tree.maybe_number(at + "package_throttle_count");
    found.any |= core || socket;
    found.times += static_cast<uint64_t>(std::max(core.value_or(0), 0.0));
    // Every core of a socket shows the counter of the socket; old processors have none.
    package = std::max(package, static_cast<uint64_t>(std::max(socket.value_or(0), 0.0)));
    if (!core) found.unread.push_back(cpu);
    if (core && !socket) no_package.push_back(cpu);
  }
  found.times += package;
  if (no_package.size() < online.size())
    std::ranges::copy(no_package, std::back_inserter(found.unread));
  return found;
}

// Frequency control of the online cores.
struct Driving {
  std::map<std::string, size_t> governors = {};
  std::vector<unsigned> limited = {}, unread = {};
  double least_khz = 0, rated_khz = 0;  // of the slowest core in `limited`
};

Driving driving(const SystemTree& tree) {
  Driving found;
  for (const unsigned cpu : cpu_facts(tree).online) {
    const std::string at = cpu_dir(cpu) + "/cpufreq/";
    const std::string governor = printable(tree.maybe_text(at + "scaling_governor").value_or(""));
    const auto allowed = tree.maybe_number(at + "scaling_max_freq");
    const auto can = tree.maybe_number(at + "cpuinfo_max_freq");
    if (!governor.empty()) found.governors[governor]++;
    if (governor.empty() || !allowed || !can) {
      found.unread.push_back(cpu);
      continue;
    }
    constexpr double kLimited = 0.95;
    if (*allowed >= kLimited * *can) continue;
    found.limited.push_back(cpu);
    if (found.least_khz != 0 && *allowed >= found.least_khz) continue;
    found.least_khz = *allowed;
    found.rated_khz = *can;
  }
  return found;
}

// With drivers that choose the frequency themselves, powersave follows the load.
bool follows_load(const SystemTree& tree) {
  return std::ranges::any_of(std::array{"intel_pstate", "amd_pstate"}, [&](const char* driver) {
    return tree.maybe_text(fmt::format("{}/{}/status", kCpus, driver)) == "active";
  });
}

}  // namespace

CpuFacts cpu_facts(const SystemTree& tree) {
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
  facts.present = parse_cpu_list(tree.maybe_text(fmt::format("{}/present", kCpus)).value_or(""));
  facts.online = parse_cpu_list(tree.maybe_text(fmt::format("{}/online", kCpus)).value_or(""));
  for (const unsigned cpu : facts.online) {
    facts.counts_throttling |= tree.exists(cpu_dir(cpu) + "/thermal_throttle");
    facts.has_cpufreq |= tree.exists(cpu_dir(cpu) + "/cpufreq/scaling_governor");
  }
  return facts;
}

void check_host_cpu(const CheckContext& context) {
  const CpuFacts facts = cpu_facts(context.tree);
  Finding finding{.name = "host.cpu"};
  if (facts.online.empty() || facts.present.empty() || facts.models.empty()) {
    finding.found = "/proc/cpuinfo or /sys/devices/system/cpu cannot be read";
    finding.hint = kProcAndSysMounted;
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
  if (!missing.empty()) finding.found += ", offline: " + ranges(missing);
  // Half of the cores are offline on purpose if hyper-threading is off.
  const bool adopted = was_adopted(context, facts.online.size());
  if (!missing.empty() && adopted) finding.expected = "as adopted, of one model and microcode";
  if (!missing.empty() && !adopted) {
    finding.verdict = Verdict::degraded;
    finding.hint =
        "Bring them online (echo 1 > /sys/devices/system/cpu/cpuN/online), or check "
        "the kernel log for the cause. If they are offline on purpose: ff validate adopt";
  } else if (facts.models.size() > 1 || facts.microcode.size() > 1) {
    finding.verdict = Verdict::degraded;
    finding.found += ", microcode " + text_of(facts.microcode);
    finding.hint = "Update the firmware, so that all sockets load the same microcode.";
  }
  context.report(std::move(finding));
}

void check_host_throttle(const CheckContext& context) {
  const Throttling now = throttling(context.tree);
  if (!now.any) {
    return context.report(
        missing_finding(context, "host.throttle", "throttle",
                        "no counters of thermal throttling (a virtual machine, or not Intel)"));
  }
  Finding finding{.name = "host.throttle"};
  if (!now.unread.empty()) {
    finding.found = fmt::format("the counters of cores {} cannot be read", ranges(now.unread));
    finding.hint = fmt::format("Look at {}/thermal_throttle.", cpu_dir(now.unread.front()));
    return context.report(std::move(finding));
  }
  finding.value = static_cast<double>(now.times);
  const CounterDelta growth = counter_delta(context, finding);
  finding.found = fmt::format("slowed down by heat {:.0f} times {}", growth.more, growth.since());
  finding.expected = "never";
  finding.source = "the processors' counters";
  finding.verdict = growth.more > 0 ? Verdict::degraded : Verdict::pass;
  if (growth.more > 0) finding.hint = "Check fans, heat sinks, filters and room temperature.";
  context.report(std::move(finding));
}

void check_host_frequency(const CheckContext& context) {
  const Driving now = driving(context.tree);
  if (now.governors.empty()) {
    return context.report(
        missing_finding(context, "host.frequency", "cpufreq",
                        "the kernel does not control the processor frequency here"));
  }
  Finding finding{.name = "host.frequency", .verdict = Verdict::pass};
  std::vector<std::string> parts;
  for (const auto& [name, count] : now.governors) {
    parts.push_back(fmt::format("{} on {}", name, count));
  }
  finding.found = fmt::format("{} cores", fmt::join(parts, ", "));
  finding.expected = "full frequency allowed; governor performance, or one that follows the load";
  finding.source = "cpufreq";
  const bool slow = now.governors.contains("powersave") && !follows_load(context.tree);
  if (slow || now.governors.size() > 1) {
    finding.verdict = Verdict::degraded;
    finding.hint = "cpupower frequency-set -g performance";
  }
  if (!now.limited.empty()) {
    finding.verdict = Verdict::degraded;
    finding.found += fmt::format(", limited to {:.2f} of {:.2f} GHz on {}", now.least_khz / 1e6,
                                 now.rated_khz / 1e6, ranges(now.limited));
    finding.hint =
        "Find who set the limit (cpupower frequency-info); check power and thermal limits of the "
        "firmware, and power supplies.";
  }
  if (!now.unread.empty()) finding.found += ", not to be read on " + ranges(now.unread);
  if (!now.unread.empty() && finding.verdict == Verdict::pass) {
    finding.verdict = Verdict::could_not_run;
    finding.hint = fmt::format("Look at {}/cpufreq.", cpu_dir(now.unread.front()));
  }
  context.report(std::move(finding));
}

}  // namespace ff::validate

// interference.cc: compares two snapshots of /proc.
#include "ops/validate/interference.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <vector>

#include "ops/validate/host.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/cpu_use.h"

namespace ff::validate {

namespace {

constexpr double kCores = 0.2;       // below it is no load
constexpr double kMoved = 20 * 1e6;  // bytes per second

uint64_t moved_by(const SystemTree& tree, uint64_t pid) {
  const std::string text = tree.maybe_text(fmt::format("/proc/{}/io", pid)).value_or("");
  uint64_t moved = 0;
  for (const std::string_view line : split(text, '\n')) {
    const size_t colon = line.find(": ");
    const std::string_view name = line.substr(0, colon);
    if (colon == line.npos || (name != "read_bytes" && name != "write_bytes")) continue;
    moved += parse_u64(line.substr(colon + 2)).value_or(0);
  }
  return moved;
}

double ticks() {
  static const double a_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return a_second;
}

void add_totals(const SystemTree& tree, MachineUsage& usage) {
  const auto use = io::parse_cpu_use(tree.maybe_text("/proc/stat").value_or(""));
  if (!use) return;
  usage.busy = use->programs;
  usage.stolen = use->stolen;
}

// The command line of a shim, "ff schedule shim DIR", which runs as long as its rank.
bool is_shim(const SystemTree& tree, uint64_t pid) {
  const std::string line = tree.maybe_text(fmt::format("/proc/{}/cmdline", pid)).value_or("");
  const auto words = split(line, '\0');
  return words.size() > 2 && words[1] == "schedule" && words[2] == "shim";
}

}  // namespace

MachineUsage usage_of(const SystemTree& tree, Clock& clock) {
  MachineUsage usage{.at_ns = clock.steady_ns()};
  add_totals(tree, usage);
  for (ProcessFacts& process : processes(tree)) {
    usage.processes[process.pid] = {.name = std::move(process.name),
                                    .seconds = static_cast<double>(process.ticks) / ticks(),
                                    .moved = moved_by(tree, process.pid)};
  }
  return usage;
}

std::string other_load(const MachineUsage& before, const MachineUsage& after,
                       const MeasuredProcess& measured, pid_t watcher) {
  constexpr double kLeastSeconds = 0.1;  // the kernel counts in hundredths
  const double wall = to_seconds(after.at_ns - before.at_ns);
  if (wall < kLeastSeconds) return "";
  const auto is = [](uint64_t pid, pid_t which) { return pid == static_cast<uint64_t>(which); };
  double busy = (after.busy - before.busy - measured.seconds) / wall;
  const double stolen = (after.stolen - before.stolen) / wall;
  std::pair<double, std::string> most_used, most_moved;
  for (const auto& [pid, process] : after.processes) {
    if (is(pid, measured.pid)) continue;
    const auto was = before.processes.find(pid);
    const bool known = was != before.processes.end();
    const double used = (process.seconds - (known ? was->second.seconds : 0)) / wall;
    if (is(pid, watcher)) {
      busy -= used;
      continue;
    }
    const uint64_t moved = process.moved - (known ? std::min(was->second.moved, process.moved) : 0);
    const std::string name = fmt::format("{} ({})", process.name, pid);
    most_used = std::max(most_used, {used, name});
    most_moved = std::max(most_moved, {static_cast<double>(moved) / wall, name});
  }
  std::vector<std::string> parts;
  if (most_used.first >= kCores) {
    parts.push_back(fmt::format("{} used {:.1f} cores", most_used.second, most_used.first));
  }
  if (busy >= kCores && busy >= 1.5 * most_used.first) {
    parts.push_back(fmt::format("all others together {:.1f} cores", busy));
  }
  if (stolen >= kCores) parts.push_back(fmt::format("other guests took {:.1f} cores", stolen));
  if (most_moved.first >= kMoved) {
    parts.push_back(
        fmt::format("{} moved {} of disks", most_moved.second, format_rate(most_moved.first)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_guest(const SystemTree& tree) {
  const std::string text = tree.maybe_text("/proc/cpuinfo").value_or("");
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with("flags")) continue;
    const auto flags = split(line, ' ');
    return std::ranges::find(flags, "hypervisor") != flags.end();
  }
  return false;
}

std::string running_job(const SystemTree& tree) {
  // Monitoring programs open GPUs without using them.
  constexpr std::array kWatchers = {"nvidia-persiste", "nv-hostengine", "dcgm-exporter",
                                    "nv-fabricmanage", "nvidia-smi",    "Xorg"};
  for (const ProcessFacts& process : processes(tree)) {
    const auto& [name, pid] = std::tie(process.name, process.pid);
    if (name == "slurmstepd") return fmt::format("slurmstepd ({}), a step of Slurm", pid);
    if (std::ranges::find(kWatchers, name) != kWatchers.end()) continue;
    if (holds_gpu(tree, pid)) return fmt::format("{} ({}), which has a GPU open", name, pid);
    if (is_shim(tree, pid)) return fmt::format("{} ({}), a task of 'ff schedule'", name, pid);
  }
  return "";
}

}  // namespace ff::validate

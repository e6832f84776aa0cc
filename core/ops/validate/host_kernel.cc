// host_kernel.cc: clock, kernel taints and OOM kills, free space, and leftover processes.
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "ops/validate/host.h"
#include "ops/validate/inventory.h"
#include "ops/validate/storage.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::validate {

namespace {

// Bits of /proc/sys/kernel/tainted (Documentation/admin-guide/tainted-kernels.rst) that indicate a
// hardware fault or an unreliable kernel. Out-of-tree modules are fine.
struct Taint {
  unsigned bit;
  Verdict verdict;
  const char* about;
};
constexpr std::array kTaints = {
    Taint{4, Verdict::fail, "a processor reported a machine check"},
    Taint{5, Verdict::fail, "a page of memory was corrupt"},
    Taint{7, Verdict::fail, "the kernel has crashed in part (oops)"},
    Taint{14, Verdict::degraded, "a core was stuck (soft lockup)"},
};

constexpr const char* kProcMounted = "Check that /proc is mounted here.";

// Nothing: no such row.
std::optional<uint64_t> vmstat(const SystemTree& tree, std::string_view key) {
  const std::string text = tree.maybe_text("/proc/vmstat").value_or("");
  for (const std::string_view line : split(text, '\n')) {
    const size_t space = line.find(' ');
    if (space != line.npos && line.substr(0, space) == key)
      return parse_u64(line.substr(space + 1));
  }
  return std::nullopt;
}

void report_oom(const CheckContext& context) {
  Finding finding{.name = "host.kernel", .part = "out of memory"};
  const auto kills = vmstat(context.tree, "oom_kill");
  if (!kills) {
    finding.found = "/proc/vmstat has no count of killed programs";
    finding.hint = kProcMounted;
    return context.report(std::move(finding));
  }
  finding.value = static_cast<double>(*kills);
  const CounterDelta growth = counter_delta(context, finding);
  finding.found = fmt::format("{:.0f} programs killed for memory {}", growth.more, growth.since());
  finding.expected = "none";
  finding.source = "/proc/vmstat";
  // OOM kills before the first run are ignored.
  const bool is_new = growth.more > 0 && (growth.since_run || context.since_ns > 0);
  finding.verdict = is_new ? Verdict::degraded : Verdict::pass;
  if (is_new) finding.hint = "Find the program in the kernel log, and limit its memory.";
  context.report(std::move(finding));
}

// The uid in the line "Uid:" of /proc/PID/status.
std::optional<uint64_t> owner_of(const SystemTree& tree, uint64_t pid) {
  const std::string status = tree.maybe_text(fmt::format("/proc/{}/status", pid)).value_or("");
  for (const std::string_view line : split(status, '\n')) {
    if (!line.starts_with("Uid:\t")) continue;
    const std::string_view rest = line.substr(5);
    return parse_u64(rest.substr(0, rest.find('\t')));
  }
  return std::nullopt;
}

// Whether only its owner and root may read its open files.
bool hides_files(const SystemTree& tree, uint64_t pid) {
  const auto files = tree.disk().list(tree.on_disk(fmt::format("/proc/{}/fd", pid)));
  return !files && files.error().code == Errc::refused;
}

}  // namespace

ClockFacts clock_facts() {
  timex now = {};
  const int state = ::adjtimex(&now);
  const double unit = (now.status & STA_NANO) != 0 ? 1e-9 : 1e-6;
  return {.synchronized = state >= 0 && state != TIME_ERROR && (now.status & STA_UNSYNC) == 0,
          .offset_seconds = static_cast<double>(now.offset) * unit};
}

std::optional<ProcessFacts> process_of(const SystemTree& tree, uint64_t pid) {
  const auto stat = tree.maybe_text(fmt::format("/proc/{}/stat", pid));
  const size_t open = stat ? stat->find('(') : std::string::npos;
  const size_t close =
      stat ? stat->rfind(") ") : std::string::npos;  // the name may contain anything
  if (close == std::string::npos || open > close) return std::nullopt;
  const auto words = split(std::string_view(*stat).substr(close + 2), ' ');
  constexpr size_t kParent = 1, kUser = 11, kSystem = 12, kResident = 21;  // fields after the name
  if (words.size() <= kResident || words[0].empty()) return std::nullopt;
  return ProcessFacts{
      .pid = pid,
      .state = words[0][0],
      .parent = parse_u64(words[kParent]).value_or(0),
      .ticks = parse_u64(words[kUser]).value_or(0) + parse_u64(words[kSystem]).value_or(0),
      .resident_pages = parse_u64(words[kResident]).value_or(0),
      .name = printable(std::string_view(*stat).substr(open + 1, close - open - 1))};
}

std::vector<ProcessFacts> processes(const SystemTree& tree) {
  std::vector<ProcessFacts> found;
  for (const std::string& name : tree.list("/proc")) {
    const auto pid = parse_u64(name);
    auto process = pid ? process_of(tree, *pid) : std::nullopt;
    if (process) found.push_back(std::move(*process));
  }
  return found;
}

bool holds_gpu(const SystemTree& tree, uint64_t pid) {
  const std::string fds = fmt::format("/proc/{}/fd", pid);
  return std::ranges::any_of(tree.list(fds), [&](const std::string& fd) {
    const auto target = tree.link_text(io::join(fds, fd));
    return target.starts_with("/dev/nvidia") || target.starts_with("/dev/kfd");
  });
}

Finding clock_finding(const ClockFacts& facts) {
  Finding finding{.name = "host.clock", .verdict = Verdict::pass};
  finding.value = facts.offset_seconds;
  finding.unit = "s";
  finding.expected = "kept by NTP or PTP";
  finding.source = "the kernel (adjtimex)";
  finding.found = fmt::format("synchronised, {:+.6f} s off", facts.offset_seconds);
  if (facts.synchronized) return finding;
  finding.verdict = Verdict::degraded;
  finding.found = "not synchronised";
  finding.hint = "Start chrony or systemd-timesyncd; see 'chronyc tracking'.";
  return finding;
}

void check_host_clock(const CheckContext& context) {
  Finding finding{.name = "host.clock"};
  if (context.fault == InjectedFault::hang) {
    for (;;) ::pause();
  }
  if (!context.tree.is_machine()) {
    finding.found = "a recorded tree does not contain the clock";
    finding.hint = "Run it on the machine itself.";
    return context.report(std::move(finding));
  }
  context.report(clock_finding(clock_facts()));
}

void check_host_kernel(const CheckContext& context) {
  if (context.fault == InjectedFault::crash) (void)::raise(SIGBUS);
  Finding finding{.name = "host.kernel", .part = "taint"};
  const auto bits = parse_u64(context.tree.maybe_text("/proc/sys/kernel/tainted").value_or(""));
  if (!bits) {
    finding.found = "/proc/sys/kernel/tainted cannot be read";
    finding.hint = kProcMounted;
  } else {
    finding.value = static_cast<double>(*bits);
    finding.found = "no fault";
    finding.expected = "no fault since the last boot";
    finding.source = "the kernel";
    finding.verdict = Verdict::pass;
    for (const Taint& one : kTaints) {
      if ((*bits >> one.bit & 1) == 0 || one.verdict <= finding.verdict) continue;
      finding.verdict = one.verdict;
      finding.found = one.about;
      finding.hint = "See the kernel log, and restart the node.";
    }
  }
  context.report(std::move(finding));
  report_oom(context);
}

void check_host_space(const CheckContext& context) {
  const auto mounted = mounted_disks(context.tree);
  if (!mounted.empty() && !context.tree.is_machine()) {
    return context.report(
        {.name = "host.space",
         .found = "a recorded tree does not contain the free space of file systems",
         .hint = "Run it on the machine itself."});
  }
  for (const MountedDisk& one : mounted) {
    Finding finding{.name = "host.space", .part = one.dir};
    struct statvfs room = {};
    if (::statvfs(context.tree.on_disk(one.dir).c_str(), &room) != 0 || room.f_blocks == 0) {
      finding.found = errno_error(errno, one.dir).message;
      finding.hint = "Check the permissions of the folder and the health of its disk.";
      context.report(std::move(finding));
      continue;
    }
    constexpr double kLow = 0.05, kVeryLow = 0.01;
    double left = static_cast<double>(room.f_bavail) / static_cast<double>(room.f_blocks);
    finding.found = fmt::format("{} of {} free", format_size(room.f_bavail * room.f_frsize),
                                format_size(room.f_blocks * room.f_frsize));
    if (room.f_files > 0) {  // some file systems allocate inodes dynamically
      const double inodes = static_cast<double>(room.f_favail) / static_cast<double>(room.f_files);
      finding.found += fmt::format(", {:.0f} % of inodes", 100 * inodes);
      left = std::min(left, inodes);
    }
    finding.value = left;
    finding.expected = fmt::format("{:.0f} % free", kLow * 100);
    finding.source = "ff";
    finding.verdict = left < kVeryLow ? Verdict::fail
                      : left < kLow   ? Verdict::degraded
                                      : Verdict::pass;
    if (finding.verdict != Verdict::pass)
      finding.hint = "Remove unneeded files, or enlarge the file system.";
    context.report(std::move(finding));
  }
  if (!mounted.empty()) return;
  context.report(
      missing_finding(context, "host.space", "fs", "no file system on a disk is mounted"));
}

void check_host_processes(const CheckContext& context) {
  constexpr uint64_t kZombies = 20;              // a few come and go
  constexpr uint64_t kFirstUser = 1000;          // people, not services
  constexpr uint64_t kMuch = kGiB / (4 * kKiB);  // pages
  uint64_t zombies = 0, stuck = 0, all = 0, hidden = 0;
  std::vector<std::string> left;
  for (const ProcessFacts& task : processes(context.tree)) {
    all++;
    zombies += task.state == 'Z' ? 1 : 0;
    stuck += task.state == 'D' ? 1 : 0;
    if (task.parent != 1 || owner_of(context.tree, task.pid).value_or(0) < kFirstUser) continue;
    hidden += hides_files(context.tree, task.pid) ? 1 : 0;
    const bool on_gpu = holds_gpu(context.tree, task.pid);
    if (!on_gpu && task.resident_pages < kMuch) continue;
    left.push_back(
        fmt::format("{} ({}, {})", task.name, task.pid,
                    on_gpu ? std::string("a GPU") : format_size(task.resident_pages * 4 * kKiB)));
  }
  Finding finding{.name = "host.processes"};
  if (all == 0) {
    finding.found = "/proc names no process";
    finding.hint = kProcMounted;
    return context.report(std::move(finding));
  }
  finding.value = static_cast<double>(zombies);
  finding.found =
      fmt::format("{} zombies, {} in uninterruptible sleep, of {} processes", zombies, stuck, all);
  finding.expected = fmt::format("fewer than {} zombies, none left behind", kZombies);
  finding.source = "ff";
  finding.verdict = hidden > 0 ? Verdict::could_not_run : Verdict::pass;
  if (hidden > 0) {
    finding.found +=
        fmt::format("; the open files of {} processes of other users are hidden", hidden);
    finding.hint = "Run it as root.";
  }
  if (zombies >= kZombies) {
    finding.verdict = Verdict::degraded;
    finding.hint = "Find the parent of the zombies (ps -el), and end that program.";
  }
  if (!left.empty()) {
    finding.verdict = Verdict::degraded;
    finding.found +=
        fmt::format("; left behind by a program that has ended: {}", fmt::join(left, ", "));
    finding.hint = "End them if they are no longer needed (kill).";
  }
  context.report(std::move(finding));
}

}  // namespace ff::validate

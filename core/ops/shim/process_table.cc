// process_table.cc: reads /proc, and signals without pid-reuse races.
#include "ops/shim/process_table.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>
#include <utility>

#include "platform/base/bytes.h"
#include "platform/base/fd.h"
#include "platform/base/text.h"
#include "platform/io/files.h"

namespace ff::shim {
namespace {

constexpr uint64_t kStatMax = 64 * kKiB;
constexpr uint64_t kEnvironMax = 64 * kMiB;  // above the kernel limit

// Fields of /proc/PID/stat, counted from the one after the name, which is field 3.
constexpr size_t kState = 0, kParent = 1, kThreads = 17, kStart = 19;

}  // namespace

std::optional<ProcessInfo> parse_stat(std::string_view line) {
  // The name is in parentheses, and may contain any bytes, including parentheses.
  const size_t name = line.find(" (");
  const size_t end = line.rfind(") ");
  if (name == line.npos || end == line.npos || end < name) return std::nullopt;
  const auto pid = parse_u64(line.substr(0, name));
  const auto fields = split(line.substr(end + 2), ' ');
  if (!pid || *pid == 0 || *pid > INT32_MAX || fields.size() <= kStart) return std::nullopt;
  const auto parent = parse_u64(fields[kParent]);
  const auto threads = parse_u64(fields[kThreads]);
  const auto start = parse_u64(fields[kStart]);
  if (!parent || *parent > INT32_MAX || !threads || !start) return std::nullopt;
  // A process whose main thread has exited before others is shown as a zombie, too.
  const bool zombie = fields[kState] == "Z" || fields[kState] == "X";
  return ProcessInfo{.id = {static_cast<pid_t>(*pid), *start},
                     .parent = static_cast<pid_t>(*parent),
                     .is_zombie = zombie && *threads <= 1};
}

std::optional<ProcessInfo> find_process(io::Disk& disk, pid_t pid) {
  const auto line = io::read_file(disk, fmt::format("/proc/{}/stat", pid), kStatMax);
  if (!line) return std::nullopt;
  return parse_stat(*line);
}

bool is_alive(io::Disk& disk, const ProcessId& id) {
  const auto found = find_process(disk, id.pid);
  return found && found->id == id && !found->is_zombie;
}

Result<std::vector<ProcessInfo>> all_processes(io::Disk& disk) {
  FF_TRY(const auto entries, disk.list("/proc"));
  std::vector<ProcessInfo> all;
  for (const io::DirEntry& entry : entries) {
    const auto pid = parse_u64(entry.name);
    if (!pid || *pid > INT32_MAX) continue;
    if (auto found = find_process(disk, static_cast<pid_t>(*pid))) all.push_back(*found);
  }
  return all;
}

std::vector<ProcessInfo> descendants(const std::vector<ProcessInfo>& all,
                                     const std::set<pid_t>& roots) {
  std::multimap<pid_t, const ProcessInfo*> children;
  for (const ProcessInfo& one : all) children.emplace(one.parent, &one);
  std::vector<ProcessInfo> found;
  std::vector<pid_t> open(roots.begin(), roots.end());
  std::set<pid_t> seen = roots;
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto child = begin; child != end; ++child) {
      if (!seen.insert(child->second->id.pid).second) continue;
      found.push_back(*child->second);
      open.push_back(child->second->id.pid);
    }
  }
  return found;
}

bool has_variable(io::Disk& disk, pid_t pid, const std::string& variable) {
  const auto environ = io::read_file(disk, fmt::format("/proc/{}/environ", pid), kEnvironMax);
  if (!environ) return false;
  for (const std::string_view one : split(*environ, '\0')) {
    if (one == variable) return true;
  }
  return false;
}

bool send_signal(io::Disk& disk, const ProcessId& id, int number) {
  // A pidfd refers to the same process for ever.
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, id.pid, 0)));
  if (process.get() < 0 && errno != ENOSYS) return false;
  const auto found = find_process(disk, id.pid);
  if (!found || found->id != id) return false;
  if (process.get() < 0) return ::kill(id.pid, number) == 0;
  return ::syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) == 0;
}

Result<std::string> boot_id(io::Disk& disk) {
  FF_TRY(std::string id, io::read_file(disk, "/proc/sys/kernel/random/boot_id", 128));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace ff::shim

// The processes of this machine, read from /proc. A pid alone does not identify a process, since
// the kernel reuses it; together with the start time it does, until the next boot.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  // clock ticks since the boot: field 22 of /proc/PID/stat
  auto operator<=>(const ProcessId&) const = default;
};

struct ProcessInfo {
  ProcessId id;
  pid_t parent = 0;
  bool is_zombie = false;  // exited, and not yet reaped
};

// One line of /proc/PID/stat.
std::optional<ProcessInfo> parse_stat(std::string_view line);

// Nothing: there is no such process.
std::optional<ProcessInfo> find_process(io::Disk& disk, pid_t pid);
// Whether it is still running.
bool is_alive(io::Disk& disk, const ProcessId& id);

// All processes. One that starts or exits meanwhile may be missing: call again.
Result<std::vector<ProcessInfo>> all_processes(io::Disk& disk);
// The processes of `all` that descend from `roots`, without the roots.
std::vector<ProcessInfo> descendants(const std::vector<ProcessInfo>& all,
                                     const std::set<pid_t>& roots);
// Whether `variable`, "NAME=value", is in the initial environment of the process.
bool has_variable(io::Disk& disk, pid_t pid, const std::string& variable);

// Signals exactly this process (pidfd), not one that reuses its pid. False: it is gone, or belongs
// to another user.
bool send_signal(io::Disk& disk, const ProcessId& id, int number);

// The boot id of the kernel.
Result<std::string> boot_id(io::Disk& disk);

}  // namespace ff::shim

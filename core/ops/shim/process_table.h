// The processes of this machine, as /proc shows them. A number alone names no process, since it is
// given again; with the time at which its process began it does, until the machine is started anew.
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
  bool ended = false;  // only waits for whoever asks how
};

// One line of /proc/PID/stat.
std::optional<ProcessInfo> parse_stat(std::string_view line);

// Nothing: there is none of this number.
std::optional<ProcessInfo> find_process(io::Disk& disk, pid_t pid);
// Whether it runs still.
bool is_alive(io::Disk& disk, const ProcessId& id);

// All there are. What begins or ends meanwhile may be missing: look again.
Result<std::vector<ProcessInfo>> all_processes(io::Disk& disk);
// Those of `all` that descend from one of `roots`, without these.
std::vector<ProcessInfo> descendants(const std::vector<ProcessInfo>& all,
                                     const std::set<pid_t>& roots);
// Whether `variable`, "NAME=value", stands in the environment that it was started with.
bool has_variable(io::Disk& disk, pid_t pid, const std::string& variable);

// To this process and to no other that has got its number since. False: it is gone, or another
// user's.
bool send_signal(io::Disk& disk, const ProcessId& id, int number);

// Which boot of the machine this is.
Result<std::string> boot_id(io::Disk& disk);

}  // namespace ff::shim

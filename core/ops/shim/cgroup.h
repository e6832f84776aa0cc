// The cgroup of the processes of a rank: it limits their memory, counts OOM kills, and lists its
// members. Version 2 if it has the memory controller, else the memory hierarchy of version 1. Where
// neither is writable there is no cgroup, and `why()` tells the reason.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

// Delay between the first two attempts to kill the processes of a rank.
constexpr int64_t kKillPauseNs = 10 * kMillisecond;

enum class CgroupKind : uint8_t { none, v1, v2 };
std::string_view cgroup_kind_name(CgroupKind kind);
std::optional<CgroupKind> cgroup_kind_of(std::string_view name);

struct CgroupSpec {
  std::string parent;         // path in the hierarchy; empty: no cgroup is wanted
  std::string name;           // of the new cgroup in `parent`
  uint64_t memory_limit = 0;  // bytes; 0: none
};

class Cgroup {
 public:
  // An existing cgroup, or none.
  Cgroup(io::Disk& disk, CgroupKind kind, std::string path)
      : disk_(&disk), kind_(kind), path_(std::move(path)) {}
  static Cgroup none(io::Disk& disk, std::string why);
  // Always succeeds; the result may be none.
  static Cgroup make(io::Disk& disk, const CgroupSpec& plan);

  CgroupKind kind() const { return kind_; }
  const std::string& path() const { return path_; }  // its directory; empty: none
  const std::string& why() const { return why_; }    // the reason for none

  // Moves a process, and so all its later children, into the cgroup.
  Result<void> add(pid_t pid);
  std::vector<pid_t> members() const;
  // Kills all members atomically (cgroup.kill, version 2). False: not supported.
  bool kill_all();
  // Peak memory of all members together, and whether any was killed for lack of memory. Nothing:
  // the kernel does not tell.
  std::optional<uint64_t> peak_memory() const;
  std::optional<bool> oom_killed() const;
  // Removes the empty cgroup. False: it is not empty, or still busy in the kernel.
  bool remove();

 private:
  std::optional<std::string> read(const char* file) const;

  io::Disk* disk_;
  CgroupKind kind_;
  std::string path_;
  std::string why_;
};

// Mount points of hierarchies with a memory controller, from the text of /proc/self/mountinfo.
// Version 2 is always listed; its files tell whether it has the controller.
struct Hierarchy {
  CgroupKind kind = CgroupKind::none;
  std::string path;
  bool operator==(const Hierarchy&) const = default;
};
std::vector<Hierarchy> parse_mountinfo(std::string_view text);

}  // namespace ff::shim

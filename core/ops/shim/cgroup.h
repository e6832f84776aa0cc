// The kernel's group of a rank's processes: it limits their memory, knows whom it killed for that,
// and finds them all when nothing else does. Version 2 where it has the memory controller, else
// version 1's memory hierarchy; where neither can be written there is none, and `why()` says so.
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

// Between the first two tries to kill the processes of a rank.
constexpr int64_t kKillPauseNs = 10 * kMillisecond;

enum class CgroupKind : uint8_t { none, v1, v2 };
std::string_view cgroup_kind_name(CgroupKind kind);
std::optional<CgroupKind> cgroup_kind_of(std::string_view name);

struct CgroupPlan {
  std::string parent;         // from the root of the hierarchy on; empty: none is wanted
  std::string name;           // of the rank's own, below it
  uint64_t memory_limit = 0;  // bytes; 0: none
};

class Cgroup {
 public:
  // A group that is there, or none.
  Cgroup(io::Disk& disk, CgroupKind kind, std::string path)
      : disk_(&disk), kind_(kind), path_(std::move(path)) {}
  static Cgroup none(io::Disk& disk, std::string why);
  // Always gives one, which may be none.
  static Cgroup make(io::Disk& disk, const CgroupPlan& plan);

  CgroupKind kind() const { return kind_; }
  const std::string& path() const { return path_; }  // its folder; empty: none
  const std::string& why() const { return why_; }    // there is none

  // Puts a process into it, and so all that it will start.
  Result<void> add(pid_t pid);
  std::vector<pid_t> members() const;
  // All at once, without a gap to fork through: version 2. False: not here.
  bool kill_all();
  // The most that they had together, and whether some were killed for wanting more. Nothing: the
  // kernel does not say.
  std::optional<uint64_t> peak_memory() const;
  std::optional<bool> oom_killed() const;
  // Once it is empty. False: it is not, or the kernel is not done with it yet.
  bool remove();

 private:
  std::optional<std::string> read(const char* file) const;

  io::Disk* disk_;
  CgroupKind kind_;
  std::string path_;
  std::string why_;
};

// Where hierarchies with memory may be mounted, from the text of /proc/self/mountinfo. Version 2
// always counts; whether it has the controller its files tell.
struct Hierarchy {
  CgroupKind kind = CgroupKind::none;
  std::string path;
  bool operator==(const Hierarchy&) const = default;
};
std::vector<Hierarchy> parse_mountinfo(std::string_view text);

}  // namespace ff::shim

// The records that a shim writes into its folder for the agent, each atomically (rename and sync):
// `running` before the program of the rank executes its first instruction, and `exit` when no
// process of the rank is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/shim/cgroup.h"
#include "ops/shim/process_table.h"
#include "platform/base/result.h"

namespace ff::shim {

struct RunningRecord {
  ProcessId shim;
  ProcessId rank;  // its first process, which leads a session
  std::string boot = {};
  CgroupKind cgroup_kind = CgroupKind::none;
  std::string cgroup = {};     // its directory
  std::string no_cgroup = {};  // the reason for none; memory is not limited then
  std::string marker = {};     // of launch.json
  int64_t began_ns = 0;        // Unix epoch
  bool operator==(const RunningRecord&) const = default;
};

enum class ExitKind : uint8_t {
  exited,       // by itself or by a signal: see `status`
  not_started,  // it never ran: see `why`
  lost,         // its shim was killed, or the machine rebooted: the exit status is unknown
};
std::string_view exit_kind_name(ExitKind kind);

struct ExitRecord {
  ExitKind kind = ExitKind::exited;
  int status = 0;                            // of waitpid(2), of the first process
  std::string why = {};                      // when not_started, lost or abandoned
  bool abandoned = false;                    // its node ended it
  int64_t ended_ns = 0;                      // exit of the first process; Unix epoch
  int64_t gone_ns = 0;                       // exit of the last process
  uint64_t killed = 0;                       // number of descendants that were killed
  std::optional<uint64_t> peak_memory = {};  // bytes
  // True: of the cgroup, all processes together with page cache. False: of the largest process.
  bool peak_of_cgroup = false;
  std::optional<bool> oom_killed = {};  // any process was; nothing: unknown
  uint64_t log_dropped = 0;             // bytes of output
  bool operator==(const ExitRecord&) const = default;
};

std::string to_json(const RunningRecord& running);
std::string to_json(const ExitRecord& exit);
// Errors: corrupt, newer_format.
Result<RunningRecord> parse_running(std::string_view text);
Result<ExitRecord> parse_exit(std::string_view text);

// File names in the folder of a shim.
constexpr const char* kLaunchFile = "launch.json";
constexpr const char* kRunningFile = "running";
constexpr const char* kExitFile = "exit";
constexpr const char* kLockFile = "lock";  // held while the shim lives

}  // namespace ff::shim

// What a shim writes into its folder for its agent, each file whole or not at all (renamed,
// synced): `running` before the first instruction of the rank's program, and `exit` when nothing of
// the rank is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ops/shim/cgroup.h"
#include "ops/shim/process_table.h"
#include "platform/base/result.h"

namespace ff::shim {

struct Running {
  ProcessId shim;
  ProcessId rank;  // its first process, which leads a session of its own
  std::string boot = {};
  CgroupKind cgroup_kind = CgroupKind::none;
  std::string cgroup = {};     // its folder
  std::string no_cgroup = {};  // why there is none: nothing limits the memory then
  std::string marker = {};     // of launch.json
  int64_t began_ns = 0;        // Unix epoch
  bool operator==(const Running&) const = default;
};

enum class Ending : uint8_t {
  ended,        // by itself, or by a signal: `status` says
  not_started,  // it never ran: `why` says
  lost,         // its shim was killed, or the machine: nobody knows how it ended
};
std::string_view ending_name(Ending ending);

struct Exit {
  Ending ending = Ending::ended;
  int status = 0;                            // of waitpid(2), for the rank's first process
  std::string why = {};                      // not_started, lost, given up
  bool given_up = false;                     // its node did not let it run on
  int64_t ended_ns = 0;                      // its first process; Unix epoch
  int64_t gone_ns = 0;                       // the last of them
  uint64_t killed = 0;                       // descendants that had to be killed
  std::optional<uint64_t> peak_memory = {};  // bytes
  // Of the cgroup: all of them together, with cached pages of files. Otherwise the largest process
  // alone.
  bool peak_of_cgroup = false;
  std::optional<bool> oom_killed = {};  // some process was; nothing: nobody counts here
  uint64_t log_dropped = 0;             // bytes of its output
  bool operator==(const Exit&) const = default;
};

std::string to_json(const Running& running);
std::string to_json(const Exit& exit);
// Errors: corrupt, newer_format.
Result<Running> parse_running(std::string_view text);
Result<Exit> parse_exit(std::string_view text);

// Names in a shim's folder.
constexpr const char* kLaunchFile = "launch.json";
constexpr const char* kRunningFile = "running";
constexpr const char* kExitFile = "exit";
constexpr const char* kLockFile = "lock";  // held while the shim lives

}  // namespace ff::shim

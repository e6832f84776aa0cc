// `launch.json` in the folder of a shim: what to run; the agent writes it before it starts the
// shim. Arguments remain a list from end to end: no shell parses them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::shim {

struct RankUser {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};  // supplementary groups
};

constexpr uint64_t kLogFileBytesLeast = 64 * kKiB;  // several chunks of lines

// Limits of the log of a rank; rank_log.h describes its format.
struct LogLimits {
  std::string path = {};  // absolute; only the user of the agent may write to its folder
  uint64_t file_bytes = 2 * kMiB;
  uint64_t files = 4;         // the current one and PATH.1 … PATH.3
  uint64_t rate = kMiB;       // sustained bytes per second; 0: no limit
  uint64_t burst = 4 * kMiB;  // bytes in excess of the rate
};

struct LaunchSpec {
  // argv[0]: a path, or a name that is searched in the PATH of `env`.
  std::vector<std::string> argv = {};
  std::vector<std::string> env = {};  // "NAME=value", the whole environment
  std::string cwd = "/";
  std::optional<RankUser> user = {};  // nothing: the credentials of the agent
  uint64_t memory_limit = 0;          // bytes, including swap; 0: none
  // The parent cgroup of the cgroup that is made for the rank, as a path in the hierarchy:
  // "ff/tasks". Empty: no cgroup, and no memory limit.
  std::string cgroup = {};
  LogLimits log = {};
  int stop_signal = 0;  // sent for order `notify`; 0: none. By name in the file: "USR1"
  // "FF_TASK_RANK_OF=…": an environment variable of the rank and all its descendants, by which
  // they are found when the shim was killed. Must be unique for each rank: otherwise the loss of
  // one shim would kill the ranks that share its marker.
  std::string marker = {};
  // Absolute path of the lease file (rank_lease.h); empty: no lease.
  std::string lease = {};
};

std::string to_json(const LaunchSpec& launch);
// Errors: corrupt, newer_format; they name the malformed field. The result is safe to pass to
// execve().
Result<LaunchSpec> parse_launch(std::string_view text);

// "USR1" or "SIGUSR1" -> 10.
std::optional<int> signal_number(std::string_view name);

}  // namespace ff::shim

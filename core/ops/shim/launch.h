// What an agent asks a shim to run: `launch.json` in the shim's folder, written before it starts.
// A program's arguments are a list from end to end: no shell ever reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/result.h"

namespace ff::shim {

struct User {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups = {};  // the supplementary ones
};

// rank_log.h says what is written, and when it is not.
struct LogLimits {
  std::string path = {};  // absolute, in a folder where nobody but the agent's user may write
  uint64_t file_bytes = 2 * kMiB;
  uint64_t files = 4;         // the current one, and PATH.1 … PATH.3 before it
  uint64_t rate = kMiB;       // bytes a second that may go on for ever; 0: no limit
  uint64_t burst = 4 * kMiB;  // bytes beyond it at once
};

struct Launch {
  // argv[0]: a path, or a name that is looked for in the PATH of `env`.
  std::vector<std::string> argv = {};
  std::vector<std::string> env = {};  // "NAME=value", all of them
  std::string cwd = "/";
  std::optional<User> user = {};  // nobody: the rank stays who the agent is
  uint64_t memory_limit = 0;      // bytes, swap included; 0: none
  // The group of processes in which one is made for the rank, from the root of the hierarchy on:
  // "ff/tasks". Empty: none is made, and there is no limit of memory.
  std::string cgroup = {};
  LogLimits log = {};
  int stop_signal = 0;  // what order `notify` sends; 0: nothing. In the file by name: "USR1"
  // "FF_TASK_RANK=…": in the environment of the rank and of all that descends from it, by which
  // they are found when the shim itself was killed. So it must be another one for each rank: of
  // several that share one, the first whose shim is lost would take the others along.
  std::string marker = {};
  // Absolute: the file that says how long it may run (lease.h); empty: none.
  std::string lease = {};
};

std::string to_json(const Launch& launch);
// Errors: corrupt, newer_format; they name what is wrong. What comes back can be given to execve().
Result<Launch> parse_launch(std::string_view text);

// "USR1" or "SIGUSR1" -> 10.
std::optional<int> signal_number(std::string_view name);

}  // namespace ff::shim

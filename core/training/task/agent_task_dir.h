// A task directory (task_dir.h) as the agent of the node uses it: creates it, asks the task to
// stop, passes the life state of the last attempt, reads all that the task has written.
//
// The agent may run as root while the directory belongs to the task's user. Therefore the agent
// never opens a file in it for writing and never changes the owner of one by its name: it creates
// files in the parent directory, which only the agent may write, and renames them into the task
// directory. Files that it reads may have any content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "training/task/task_dir.h"

namespace ff::task {

struct FileOwner {
  uint32_t uid = 0;
  uint32_t gid = 0;
};

// The ranks of one node, which follow one another.
struct RankRange {
  uint32_t first = 0;
  uint32_t count = 0;
};
constexpr uint32_t kNodeRanksMax = 4096;  // each rank is a file that the agent reads

struct RankHeartbeat {
  uint32_t rank = 0;
  uint64_t step = 0;
  int64_t mtime_ns = 0;  // Unix epoch; like the step, the task may have set any value
  bool operator==(const RankHeartbeat&) const = default;
};

struct TaskDirSnapshot {
  std::optional<StopRequest> stop;
  bool acked = false;
  std::optional<uint64_t> saved;          // may decrease: the task decides
  std::vector<RankHeartbeat> heartbeats;  // by rank; only of ranks that wrote one
  std::optional<uint32_t> life_state;
  // "PATH: REASON" of files that were ignored, for the log if they stay so. Among them are files
  // that the task is just writing: empty, or without a newline at the end.
  std::vector<std::string> ignored;
};

class AgentTaskDir {
 public:
  // `dir` is absolute; its parent exists, is on the same file system, and only the agent may write
  // it. A memory file system (/run) is best: a heartbeat takes 20 us there, and a millisecond on a
  // disk whose file system flushes files that replace others. `owner`: the task's user, for an
  // agent that runs as root.
  AgentTaskDir(io::Disk& disk, Rng& rng, std::string dir, std::optional<FileOwner> owner = {});

  // Creates the directory; an existing one keeps its files. Errc::refused: it is no directory.
  Result<void> create();
  // Replaces an earlier request. Errc::usage: not a valid request (stop_line()).
  Result<void> request_stop(const StopRequest& request);
  Result<void> set_life_state(uint32_t value);
  // With the heartbeats of these ranks. Errors: no such directory; too many ranks.
  Result<TaskDirSnapshot> read(const RankRange& ranks);

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", dir_, name); }
  Result<void> write(std::string_view name, std::string_view line);

  io::Disk& disk_;
  Rng& rng_;
  const std::string dir_;
  const std::optional<FileOwner> owner_;
};

}  // namespace ff::task

// What the agent of a node does with a task's folder (task_dir.h): make it, ask the task to stop,
// hand it the word that its last attempt has left, read all that the task has said.
//
// The agent may be root, and the folder is the task's user's. So nothing in there is opened for
// writing, or given to anybody, by its name: files are made beside the folder, in its parent, which
// is the agent's alone, and then renamed into it. What is read may be anything.
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

struct Owner {
  uint32_t uid = 0;
  uint32_t gid = 0;
};

// Of one node: they follow one another.
struct Ranks {
  uint32_t first = 0;
  uint32_t count = 0;
};
constexpr uint32_t kRanksMost = 4096;  // of a node; each is a file to look for

struct Heartbeat {
  uint32_t rank = 0;
  uint64_t step = 0;
  int64_t mtime_ns = 0;  // Unix epoch; the task may have set it to anything, like the step
  bool operator==(const Heartbeat&) const = default;
};

struct Snapshot {
  std::optional<StopRequest> stop;  // that was written
  bool acked = false;
  std::optional<uint64_t> saved;      // may be less than it was: a task that goes back says so
  std::vector<Heartbeat> heartbeats;  // of ranks that gave one, by rank
  std::optional<uint32_t> life_state;
  // "PATH: why", of files that say nothing: for the log, once they stay so. Empty ones and lines
  // without an end are among them, which may be being written just now.
  std::vector<std::string> ignored;
};

class AgentSide {
 public:
  // `dir` is absolute; its parent exists, is on the same file system, and only the agent may write
  // there. Best in memory (/run): a heartbeat takes 20 us then, and a millisecond where a disk
  // hurries to write each file that replaces another. `owner` is given by an agent that runs as
  // root: the task's user.
  AgentSide(io::Disk& disk, Rng& rng, std::string dir, std::optional<Owner> owner = {});

  // The folder; one that is there stays, with what is in it. Errc::refused: something else is.
  Result<void> make();
  // Replaces a request made before. Errc::usage: it is none (stop_line()).
  Result<void> request_stop(const StopRequest& request);
  Result<void> set_life_state(uint32_t word);
  // Heartbeats of these ranks. An error: there is no such folder; or too many ranks.
  Result<Snapshot> read(const Ranks& ranks);

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", dir_, name); }
  Result<void> write(std::string_view name, std::string_view line);

  io::Disk& disk_;
  Rng& rng_;
  const std::string dir_;
  const std::optional<Owner> owner_;
};

}  // namespace ff::task

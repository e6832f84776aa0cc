// A task directory (task_dir.h) as the task uses it: checks for a stop request, reports saved steps
// and heartbeats, keeps the life state for the next attempt. Calls are independent and keep no file
// open, so ranks, threads and child processes may make them at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "training/task/task_dir.h"

namespace ff::task {

// $FF_TASK_DIR; nothing when this process belongs to no task.
std::optional<std::string> task_dir_from_environment();

struct HeartbeatUpdate {
  uint32_t rank = 0;
  uint64_t step = 0;
};

class TaskClient {
 public:
  // `disk` is the local file system, wherever checkpoints are stored.
  TaskClient(io::Disk& disk, Rng& rng, std::string dir)
      : disk_(disk), rng_(rng), dir_(std::move(dir)) {}

  // The agent's request to save and exit, if any. Cheap enough for every step: one lstat(2) without
  // a request. The first call that finds one acknowledges it; if that fails, the request is
  // returned all the same, and the next call tries again.
  std::optional<StopRequest> should_stop();
  // The whole task, not only this rank, can resume from `step`.
  Result<void> saved(uint64_t step);
  Result<void> heartbeat(const HeartbeatUpdate& update);
  // Set by this attempt or an earlier one; 0: never set. Errc::corrupt: the file is malformed.
  Result<uint32_t> life_state();
  Result<void> set_life_state(uint32_t value);

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", dir_, name); }
  Result<void> write(std::string_view name, std::string_view line);

  io::Disk& disk_;
  Rng& rng_;
  const std::string dir_;
};

}  // namespace ff::task

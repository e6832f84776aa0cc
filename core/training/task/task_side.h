// What a task does with its folder (task_dir.h): look whether it is to stop, say what it has saved
// and where it is, keep a word for its next attempt. Each call stands for itself and leaves nothing
// open, so that ranks, threads and children of a program may all make them at once.
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

// $FF_TASK_DIR. Nothing: this process is in no task.
std::optional<std::string> dir_of_environment();

struct Beat {
  uint32_t rank = 0;
  uint64_t step = 0;
};

class TaskSide {
 public:
  // Of the machine's own files, wherever checkpoints lie.
  TaskSide(io::Disk& disk, Rng& rng, std::string dir)
      : disk_(disk), rng_(rng), dir_(std::move(dir)) {}

  // Whether the agent asks it to save and end. Cheap enough for every step: one lstat(2), unless it
  // does. The first to see the request says so to the agent; where that fails, it is asked for all
  // the same, and the next call tries again.
  std::optional<StopRequest> should_stop();
  // The whole task, not this rank alone, can go on from `step`.
  Result<void> saved(uint64_t step);
  Result<void> heartbeat(const Beat& beat);
  // What an earlier attempt has left, or this one; 0: nobody has set it. Errc::corrupt: something
  // else is there.
  Result<uint32_t> life_state();
  Result<void> set_life_state(uint32_t word);

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", dir_, name); }
  Result<void> write(std::string_view name, std::string_view line);

  io::Disk& disk_;
  Rng& rng_;
  const std::string dir_;
};

}  // namespace ff::task

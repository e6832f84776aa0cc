// Finds the directories of ranks under those of agents, and kills the ranks that still run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "e2e/child.h"
#include "ops/shim/control.h"
#include "platform/base/clock.h"
#include "platform/io/system_disk.h"

namespace ff::cmd {

// All rank directories under `dir`.
inline std::vector<std::string> rank_dirs(const std::string& dir) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(dir, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with("rank.")) found.push_back(at->path());
  }
  return found;
}

inline void end_rank(const std::string& dir) {
  io::SystemDisk disk;
  SystemClock clock;
  (void)shim::send_order(disk, dir, shim::ShimOrder::kill);
  test::eventually([&] {
    const auto state = shim::read_state(disk, dir);
    if (state && state->phase == shim::ShimPhase::lost)
      return shim::kill_lost_rank(disk, clock, dir).ok();
    return !state || state->phase != shim::ShimPhase::running;
  });
}

}  // namespace ff::cmd

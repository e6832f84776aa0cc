// The side of the agent: it starts shims (shim.h), reads their state, sends them orders, and cleans
// up after one that was killed. All state is in the folder of the shim, so a restarted agent
// continues. All functions are idempotent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/shim/orders.h"
#include "ops/shim/records.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::shim {

// Runs `argv` with the absolute path `dir` appended, detached from this process; argv[0] is a path.
// launch.json must be in `dir`. Returns once the program runs, which is before `running` or `exit`
// exists. A second shim for the same folder exits without effect, so a repeated call is safe.
Result<void> start_shim(std::vector<std::string> argv, const std::string& dir);

enum class ShimPhase : uint8_t {
  not_started,  // no rank process has run yet
  running,
  exited,  // no process of the rank is left
  lost,    // the shim is gone without an exit record; rank processes may still run
};

struct ShimState {
  ShimPhase phase = ShimPhase::not_started;
  std::optional<RunningRecord> running =
      {};                               // when running or lost; when exited, if it was written
  std::optional<ExitRecord> exit = {};  // when exited
};

// Errors: of reading the files. The time of the last output is the mtime of the log.
Result<ShimState> read_state(io::Disk& disk, const std::string& dir);

// The shim executes the order soon, or when it starts. No effect after its exit; a lost shim
// ignores orders: use kill_lost_rank().
Result<void> send_order(io::Disk& disk, const std::string& dir, ShimOrder order);

// Kills the remaining processes of a rank whose shim is lost: its first process, all members of its
// cgroup, all processes with its marker in the environment, and all their descendants. Then writes
// `exit` (ExitKind::lost) and returns it. After a reboot there is nothing to kill. An existing exit
// record is returned unchanged. Takes up to 10 s, longer where /proc hangs: not on a loop. Errors:
// refused (the shim is alive, or never ran), deadline (a process hangs in the kernel; try again).
Result<ExitRecord> kill_lost_rank(io::Disk& disk, Clock& clock, const std::string& dir);

}  // namespace ff::shim

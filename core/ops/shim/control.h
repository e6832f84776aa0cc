// An agent's side of its shims (shim.h): to start one, to see how it is, to give it orders, and to
// clear up after one that was killed. All of it is in the shim's folder, so an agent that was
// started again goes on where it was. Each of these may be done twice.
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

// Runs `argv` with `dir`, an absolute path, behind it, as a process that is no child of this one;
// argv[0] is a path. launch.json is in `dir` by then. Returns once the program runs, which is
// before `running` or `exit` is there. Where a shim has been in this folder, a second one ends
// without a trace: starting it again is safe.
Result<void> start_shim(std::vector<std::string> argv, const std::string& dir);

enum class Phase : uint8_t {
  not_started,  // it was never started, or has not come so far yet; nothing of the rank has run
  running,
  exited,  // nothing of the rank is left
  lost,    // the shim is gone without an exit; the rank's processes may run on
};

struct State {
  Phase phase = Phase::not_started;
  std::optional<Running> running = {};  // running, lost; exited, when it had got so far
  std::optional<Exit> exit = {};        // exited
};

// Errors: those of the files. When the rank last printed is its log's time of modification.
Result<State> read_state(io::Disk& disk, const std::string& dir);

// The shim carries it out soon, or as soon as it begins. Nothing once it has exited; a lost one
// hears nothing: kill_lost().
Result<void> give_order(io::Disk& disk, const std::string& dir, Order order);

// Kills what runs on of a rank whose shim is lost: its first process, all in its cgroup, all that
// have its marker in their environment, and all that descend from these. Then writes `exit`
// (Ending::lost), which this returns. After another boot there is nothing to kill. What was written
// before is returned as it is. It may take 10 s, and longer where /proc hangs: not in a loop's
// thread. Errors: refused (the shim lives, or was never there), deadline (a process hangs in the
// kernel; try again).
Result<Exit> kill_lost(io::Disk& disk, Clock& clock, const std::string& dir);

}  // namespace ff::shim

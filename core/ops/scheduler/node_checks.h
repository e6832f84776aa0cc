// Runs `ff validate` on this node when the scheduler wants it (SyncReply::checks): one run at a
// time, as a process in its own session, killed when the agent stops. The agent reports the result
// until the scheduler no longer asks for the run; a restarted agent runs it again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/scheduler/scheduler.pb.h"
#include "ops/validate/check.h"
#include "platform/base/loop.h"
#include "platform/base/process.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::scheduler {

class NodeChecks {
 public:
  // `command`: the program and its arguments; it prints a --json envelope. `on_change`: report()
  // has changed.
  NodeChecks(Loop& loop, std::vector<std::string> command, std::function<void()> on_change);

  // The id of the wanted run; 0: none, and a running one is stopped.
  void set_wanted_run(uint64_t run);
  // Run 0: nothing to report.
  const wire::Checks& report() const { return report_; }
  // Runs until cancelled.
  Task<void> run();

 private:
  Task<Result<wire::Verdict>> run_checks(uint64_t run);
  Task<void> stop_unwanted(uint64_t run, pid_t group);

  Loop& loop_;
  const std::vector<std::string> command_;
  const std::function<void()> on_change_;
  uint64_t wanted_ = 0;
  wire::Checks report_;
  Event changed_;
};

// The verdict that the scheduler gets: the worst verdict of the run, and of each check.
using CheckVerdicts = std::map<std::string, validate::Verdict>;
wire::Verdict make_verdict(validate::Verdict worst, const CheckVerdicts& found);
// Parses the output of `ff validate --json`. Errc::failed: it has no verdict.
Result<wire::Verdict> parse_validate_output(std::string_view printed);

}  // namespace ff::scheduler

// Runs of `ff validate` that the scheduler wants of this node (SyncReply::checks): one at a time, a
// process in a session of its own, which ends with the agent. What came of one is told until the
// scheduler wants it no longer; an agent that starts again is told to do it again.
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
  // `command`: the program and its words; it prints an envelope of --json. `news`: there is another
  // thing to tell.
  NodeChecks(Loop& loop, std::vector<std::string> command, std::function<void()> news);

  // The run that is wanted; 0: none, and one under way is ended.
  void want(uint64_t run);
  // Run 0: nothing.
  const wire::Checks& told() const { return told_; }
  // Until it is cancelled.
  Task<void> tend();

 private:
  Task<Result<wire::Verdict>> check(uint64_t run);
  Task<void> end_unwanted(uint64_t run, pid_t group);

  Loop& loop_;
  const std::vector<std::string> command_;
  const std::function<void()> news_;
  uint64_t wanted_ = 0;
  wire::Checks told_;
  Event changed_;
};

// What the scheduler is told of a run: its verdict, and the worst that each check has found.
using Found = std::map<std::string, validate::Verdict>;
wire::Verdict make_verdict(validate::Verdict worst, const Found& found);
// Of what `ff validate --json` has printed. Errc::failed: no verdict is in it.
Result<wire::Verdict> verdict_of_run(std::string_view printed);

}  // namespace ff::scheduler

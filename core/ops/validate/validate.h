// One run of `ff validate`: runs the selected checks, compares values with the history of the node,
// and stores the run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/history.h"
#include "ops/validate/run.h"
#include "platform/base/stop_token.h"

namespace ff::validate {

struct ValidationRequest {
  RunLevel level = RunLevel::quick;
  std::vector<std::string> only = {};  // names or groups; none: all
  // Names or groups: could-not-run counts as fail, and so does skipped if nothing else of the name
  // or group was examined: adoption excuses no required part.
  std::vector<std::string> required = {};
  std::optional<double> budget_seconds = {};
  bool force = false;         // run loads although a job runs on the node
  std::string log_file = {};  // a saved log, perhaps of another machine: only it is examined
  std::string scratch = {};   // directory for the file of storage.speed
  InjectedFault fault = InjectedFault::none;
  AllreduceRanks allreduce_ranks = {};  // if unset, collective.reduce is could-not-run
  // As of RunPlan; for a load that is measured again, one of one.
  std::function<void(const RunProgress&)> progress = {};
};

struct ValidationReport {
  std::string host = {};      // "": a saved log was examined, perhaps of another machine
  std::string log_file = {};  // the saved log, if one was given
  int64_t wall_ns = 0;
  RunLevel level = RunLevel::quick;
  Verdict verdict = Verdict::skipped;
  double seconds = 0;
  std::vector<CheckResult> results = {};
  std::vector<const Check*> over_budget = {};  // checks that did not run
  std::optional<Error> not_recorded = {};      // why the history could not be written

  std::vector<Finding> findings() const;
};

// Merges two results of a check: the better value of each part; a part that failed in either has
// failed.
void merge_best(CheckResult& outcome, const CheckResult& again);

// `history` null: nothing is compared or recorded, as for a recorded tree, of which only checks
// that read files run, and for a saved log. `ended`: called for each result, also for those of
// loads that are measured again. Errors: usage for unknown names in `only` and `required`, those of
// run_checks, those of reading the history.
Result<ValidationReport> validate(const SystemTree& tree, Clock& clock, const StopToken& stop,
                                  History* history, const ValidationRequest& request,
                                  const std::function<void(const CheckResult&)>& ended);

}  // namespace ff::validate

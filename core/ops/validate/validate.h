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
  std::vector<std::string> only = {};      // names or groups; none: all
  std::vector<std::string> required = {};  // groups in which could-not-run counts as fail
  std::optional<double> budget_seconds = {};
  bool force = false;         // run loads although a job runs on the node
  std::string log_file = {};  // a saved log instead of the log of this machine
  std::string scratch = {};   // directory for the file of storage.speed
  InjectedFault fault = InjectedFault::none;
  AllreduceRanks allreduce_ranks = {};  // if unset, collective.reduce is could-not-run
};

struct ValidationReport {
  std::string host = {};
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

// `history` null: a recorded tree, without history; only checks that read files run. `ended`:
// called for each result. Errors: usage for unknown names in `only` and `required`, those of
// run_checks, those of reading the history.
Result<ValidationReport> validate(const SystemTree& tree, Clock& clock, const StopToken& stop,
                                  History* history, const ValidationRequest& request,
                                  const std::function<void(const CheckResult&)>& ended);

}  // namespace ff::validate

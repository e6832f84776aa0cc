// Runs checks, each in its own process: a check that hangs in a driver, or that dies of SIGBUS, is
// named and does not affect the others. Checks that only read run in parallel; loads run alone,
// after them, so that nothing else disturbs their results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/check.h"
#include "platform/base/stop_token.h"

namespace ff::validate {

// The result of one check.
struct CheckResult {
  const Check* check = nullptr;
  std::vector<Finding> findings = {};  // at least one
  double seconds = 0;
};

// What runs at a moment.
struct RunProgress {
  size_t done = 0, total = 0;    // checks
  const Check* check = nullptr;  // the one that has run longest
  double seconds = 0;            // how long it has
  size_t beside = 0;             // others that run at the same time
};

struct RunPlan {
  std::vector<const Check*> checks;
  RunLevel level = RunLevel::quick;
  const std::optional<Inventory>& inventory;
  int64_t since_ns = 0;
  std::string log_file = {};
  std::string scratch = {};
  InjectedFault fault = InjectedFault::none;
  AllreduceRanks allreduce_ranks = {};
  std::string job =
      {};  // a job on this node: loads would disturb it, so they are not run and report this
  std::function<std::optional<double>(const std::string&, const std::string&)> before;
  std::function<void(const RunProgress&)> progress = {};  // called about ten times a second
};

// The checks that fit into the budget at this level, high `worth` first. `only`: names or groups;
// none: all. `over_budget`: the checks that do not fit.
std::vector<const Check*> select_checks(RunLevel level, const std::vector<std::string>& only,
                                        std::optional<double> budget_seconds,
                                        std::vector<const Check*>& over_budget);

// Results in the order of the plan. `ended`: called for each result. The process must be
// single-threaded. A check without output, past its deadline, or that dies gets a finding about
// that: could-not-run, or fail if a processor or memory fault ended it. Errors: interrupted,
// deadline, fork failures.
Result<std::vector<CheckResult>> run_checks(const SystemTree& tree, Clock& clock,
                                            const StopToken& stop, const RunPlan& plan,
                                            const std::function<void(const CheckResult&)>& ended);

// Serializes a finding as one line for the parent process, and parses it. Nothing: malformed.
std::string to_line(const Finding& finding);
std::optional<Finding> from_line(std::string_view line);

}  // namespace ff::validate

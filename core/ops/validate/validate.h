// One run of `ff validate`: chosen checks, held against what this node was like before, written
// down.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/validate/history.h"
#include "ops/validate/run.h"
#include "platform/base/stop.h"

namespace ff::validate {

struct Request {
  Level level = Level::quick;
  std::vector<std::string> only = {};      // names or groups; none: all
  std::vector<std::string> required = {};  // groups in which could-not-run counts as fail
  std::optional<double> budget_seconds = {};
  bool force = false;         // loads run beside a job, too
  std::string log_file = {};  // a saved log, instead of this machine's
  std::string scratch = {};   // a folder for the file that storage.speed makes
  Fault fault = Fault::none;
  SumRanks sum_ranks = {};  // without it collective.reduce is could-not-run
};

struct Report {
  std::string host = {};
  int64_t wall_ns = 0;
  Level level = Level::quick;
  Verdict verdict = Verdict::skipped;
  double seconds = 0;
  std::vector<Outcome> outcomes = {};
  std::vector<const Check*> left_out = {};  // by the budget
  std::optional<Error> not_recorded = {};   // the history could not be written

  std::vector<Finding> findings() const;
};

// Of what a check has said twice, the better value of each part; what failed in either has failed.
void keep_best(Outcome& outcome, const Outcome& again);

// `history` null: a recorded tree, which has none; there, only checks that read files run. `ended`:
// told of each check as it ends. Errors: usage for names in `only` and `required` that are no
// check's, those of run_checks, those of reading the history.
Result<Report> validate(const Tree& tree, Clock& clock, const Stop& stop, History* history,
                        const Request& request, const std::function<void(const Outcome&)>& ended);

}  // namespace ff::validate

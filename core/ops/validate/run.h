// Runs checks, each in a process of its own: one that hangs in a driver, or that bad memory ends
// with SIGBUS, is named and takes nothing else with it. Those that only read run side by side; a
// load runs alone, and after them, so that nothing else moves its figures.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/check.h"
#include "platform/base/stop.h"

namespace ff::validate {

// What came of one check.
struct Outcome {
  const Check* check = nullptr;
  std::vector<Finding> findings = {};  // at least one
  double seconds = 0;
};

struct Plan {
  std::vector<const Check*> checks;
  Level level = Level::quick;
  const std::optional<Inventory>& inventory;
  int64_t since_ns = 0;
  std::string log_file = {};
  std::string scratch = {};
  Fault fault = Fault::none;
  SumRanks sum_ranks = {};
  std::string job = {};  // that runs on this node: loads would disturb it, and say so instead
  std::function<std::optional<double>(const std::string&, const std::string&)> before;
};

// Checks that fit into the budget at this level, those of higher worth first. `only`: names
// or groups, none for all. `left_out`: those that did not fit.
std::vector<const Check*> choose(Level level, const std::vector<std::string>& only,
                                 std::optional<double> budget_seconds,
                                 std::vector<const Check*>& left_out);

// In the order of the plan. `ended`: told of each as it ends. The program must have no other
// threads. A check that says nothing, that is past its deadline, or that ends by itself has a
// finding that says so: could-not-run, and fail where the processor or memory ended it. Errors:
// interrupted, deadline, no process could be made.
Result<std::vector<Outcome>> run_checks(const Tree& tree, Clock& clock, const Stop& stop,
                                        const Plan& plan,
                                        const std::function<void(const Outcome&)>& ended);

// A finding as one line, from one process to the other, and back. Nothing: it is none.
std::string to_line(const Finding& finding);
std::optional<Finding> from_line(std::string_view line);

}  // namespace ff::validate

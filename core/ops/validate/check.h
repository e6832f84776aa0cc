// What a check is and what it reports (design: validate.md). A check measures one thing and reports
// for each part (link, core, disk) the measured value, the expected value and its source, and what
// to do next. It never passes a part that it could not examine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/allreduce_rank.h"
#include "ops/validate/fault.h"
#include "ops/validate/system_tree.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"

namespace ff::validate {

// Ordered from good to bad; the verdict of a node is the worst of its findings. `skipped`: the part
// is recorded as absent; not counted.
enum class Verdict : uint8_t { skipped, pass, could_not_run, degraded, fail };
std::string_view verdict_name(Verdict verdict);  // "could-not-run"
std::optional<Verdict> parse_verdict(std::string_view name);

// The good direction of a value. Only values with a good direction are compared with the history of
// the node.
enum class Better : uint8_t { neither, higher, lower };

// One line of a run.
struct Finding {
  std::string name = {};  // of the check: "pci.link"
  std::string part = {};  // what was examined: "0000:17:00.0"; empty: the machine
  Verdict verdict = Verdict::could_not_run;
  std::string found = {};            // the result as text: "8 GT/s x8"
  std::optional<double> value = {};  // the result as a number, stored and compared
  std::string unit = {};             // of `value`: "B/s", "" for counts
  Better better = Better::neither;
  std::string expected = {};
  std::string source = {};  // of `expected`: "both ends of the link", "adopted", "the last 20 runs"
  std::string load =
      {};              // other load on the machine during the measurement; empty: none to speak of
  double seconds = 0;  // duration of its check
  std::string hint = {};  // what to do next; empty if it passes
};

// A value with its unit: "44.2GiB/s", "241 GFLOP/s", "69.9 k/s" (unit "1/s").
std::string value_text(double value, std::string_view unit);

// The load of a check on the node.
enum class CheckCost : uint8_t {
  reads,  // reads kernel files; runs beside other checks
  load,   // loads processors, memory or disks; runs alone
};

// How long loads run, and how much memory and disk they take.
enum class RunLevel : uint8_t { quick, weekly, burn_in };
std::string_view run_level_name(RunLevel level);  // "burn-in"
std::optional<RunLevel> parse_run_level(std::string_view name);

// The hardware of this node: parts by kind and name (inventory.h), recorded by `validate adopt`.
using Inventory = std::map<std::string, std::string>;

// The environment of a check. Findings go to `report` one by one, so those before a hang or crash
// are kept.
struct CheckContext {
  const SystemTree& tree;
  Clock& clock;
  Rng& rng;
  RunLevel level = RunLevel::quick;
  const std::optional<Inventory>& inventory;  // none: never adopted
  int64_t since_ns = 0;  // wall time of the last run; older log lines were reported then; 0: none
  const std::string& log_file;  // a saved log to read; empty: the log of this machine
  const std::string& scratch;   // directory for temporary files of checks
  InjectedFault fault = InjectedFault::none;
  AllreduceRanks allreduce_ranks = {};
  // The value of a part in the last run since the last boot; none: there was no such run.
  std::function<std::optional<double>(const std::string& name, const std::string& part)> before;
  std::function<void(Finding)> report;
};

// The increase of a kernel counter, and since when.
struct CounterDelta {
  double more = 0;
  bool since_run = false;  // since the last run; else since the last boot
  const char* since() const { return since_run ? "since the last run" : "since the boot"; }
};
CounterDelta counter_delta(const CheckContext& context, const Finding& counter);

struct Check {
  const char* name;   // "GROUP.NAME"
  const char* about;  // the line in `validate list`
  CheckCost cost;
  int64_t quick_ns;  // its deadline at level quick
  double seconds;    // typical duration at level quick, for --budget
  int worth;         // fault detection per second, by experience; --budget prefers high values
  void (*run)(const CheckContext& context);

  // Loads take longer at higher levels.
  int64_t deadline_ns(RunLevel level) const;
  double seconds_at(RunLevel level) const;

  std::string_view group() const {
    return std::string_view(name).substr(0, std::string_view(name).find('.'));
  }
};

// All checks, group by group.
std::span<const Check> all_checks();

}  // namespace ff::validate

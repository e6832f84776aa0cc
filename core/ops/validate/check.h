// What a check is, and what it finds (design: validate.md). A check measures one thing and says of
// each part of it (a link, a core, a disk) what came out, what should have, where that is known
// from, and what to do next. It never passes what it could not look at.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/validate/fault.h"
#include "ops/validate/sum_rank.h"
#include "ops/validate/tree.h"
#include "platform/base/clock.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"

namespace ff::validate {

// From good to bad, as a node's verdict is the worst of its findings. `skipped`: recorded as not
// there, and not counted.
enum class Verdict : uint8_t { skipped, pass, could_not_run, degraded, fail };
std::string_view verdict_name(Verdict verdict);  // "could-not-run"
std::optional<Verdict> verdict_of(std::string_view name);

// Which side of a value is good: only such are held against the node's history.
enum class Better : uint8_t { neither, higher, lower };

// One line of a run.
struct Finding {
  std::string name = {};  // of the check: "pci.link"
  std::string part = {};  // what of: "0000:17:00.0"; empty: the machine
  Verdict verdict = Verdict::could_not_run;
  std::string found = {};            // in words: "8 GT/s x8"
  std::optional<double> value = {};  // the same as a number that is kept and compared
  std::string unit = {};             // of `value`: "B/s", "" for counts
  Better better = Better::neither;
  std::string expected = {};
  std::string source = {};  // of `expected`: "both ends of the link", "adopted", "the last 20 runs"
  std::string load = {};    // who else worked the machine meanwhile; empty: nobody to speak of
  double seconds = 0;       // that its check took
  std::string hint = {};    // what to do next; empty for what passes
};

// A value as people read it: "44.2GiB/s", "241 GFLOP/s", "69.9 k/s" (unit "1/s").
std::string value_text(double value, std::string_view unit);

// What it costs the node while it runs.
enum class Cost : uint8_t {
  reads,  // files of the kernel: beside everything else
  load,   // processors, memory or disks: alone
};

// How long loads go on, and how much of memory and disks they take.
enum class Level : uint8_t { quick, weekly, burn_in };
std::string_view level_name(Level level);  // "burn-in"
std::optional<Level> level_of(std::string_view name);

// What this node has: parts by kind and name (inventory.h), written down by `validate adopt`.
using Inventory = std::map<std::string, std::string>;

// What a check works with. Findings go to `report` as they come, so that those before a hang or a
// crash are known.
struct Context {
  const Tree& tree;
  Clock& clock;
  Rng& rng;
  Level level = Level::quick;
  const std::optional<Inventory>& inventory;  // none: never adopted
  int64_t since_ns = 0;  // wall time of the last run: what is older in logs was told then; 0: none
  const std::string& log_file;  // a saved log to read; empty: the machine's own
  const std::string& scratch;   // a folder for files that a check makes and removes
  Fault fault = Fault::none;
  SumRanks sum_ranks = {};
  // The value of a part in the last run since the machine was started; none: there was none.
  std::function<std::optional<double>(const std::string& name, const std::string& part)> before;
  std::function<void(Finding)> report;
};

// What a counter of the kernel has grown by, and since when.
struct Growth {
  double more = 0;
  bool since_run = false;  // since the last run; else since the machine was started
  const char* since() const { return since_run ? "since the last run" : "since the boot"; }
};
Growth growth_of(const Context& context, const Finding& counter);

struct Check {
  const char* name;   // "GROUP.WHAT"
  const char* about;  // one line of `validate list`
  Cost cost;
  int64_t quick_ns;  // its deadline at the level quick
  double seconds;    // about what it takes there, for --budget
  int worth;         // what it finds in a second, by experience: --budget takes high ones first
  void (*run)(const Context& context);

  // Loads may take longer at higher levels.
  int64_t deadline_ns(Level level) const;
  double seconds_at(Level level) const;

  std::string_view group() const {
    return std::string_view(name).substr(0, std::string_view(name).find('.'));
  }
};

// All of them, group by group.
std::span<const Check> all_checks();

}  // namespace ff::validate

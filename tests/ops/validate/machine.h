// A recorded machine (recorded.h) on a disk in memory, and one check run on it: what it says, held
// against what was adopted and what the machine was like in the last run.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/validate/check.h"
#include "ops/validate/inventory.h"
#include "ops/validate/parts.h"
#include "ops/validate/recorded.h"
#include "ops/validate/watched_disk.h"
#include "platform/base/rng.h"
#include "platform/base/text.h"
#include "platform/sim/sim_clock.h"
#include "platform/sim/sim_disk.h"

namespace ff::validate {

// 2026-11-23T12:00:00Z, a day after the last line of the machines' logs.
constexpr int64_t kNowNs = 1'795'435'200 * kSecond;

// What tells nothing on a recorded tree: system calls and helpers answer for the machine that the
// test runs on.
inline bool needs_machine(std::string_view check) {
  return check == "host.clock" || check == "host.space" || check == "gpu.health" ||
         check == "storage.health";
}

inline const Check& check_named(std::string_view name) {
  for (const Check& check : all_checks()) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no check " << name;
  return all_checks().front();
}

class Machine {
 public:
  // Of tests/ops/validate/trees/NAME.txt; empty: a machine that shows nothing.
  explicit Machine(const std::string& name) {
    lay_out(disk, kRoot, name.empty() ? "/proc/\n" : recorded(name));
  }

  // Changes it, as recorded.h says.
  Machine& patch(std::string_view text) {
    lay_out(disk, kRoot, text);
    return *this;
  }
  Machine& adopt() {
    inventory = take_inventory(tree);
    return *this;
  }
  // The check's findings; at least one.
  std::vector<Finding> run(const Check& check) {
    std::vector<Finding> findings;
    const Context context{.tree = tree,
                          .clock = clock,
                          .rng = rng,
                          .inventory = inventory,
                          .since_ns = since_ns,
                          .log_file = log_file,
                          .scratch = log_file,
                          .before =
                              [this](const std::string& name, const std::string& part) {
                                const auto found = before.find({name, part});
                                return found == before.end() ? std::nullopt
                                                             : std::optional(found->second);
                              },
                          .report = [&](Finding one) { findings.push_back(std::move(one)); }};
    check.run(context);
    EXPECT_FALSE(findings.empty()) << check.name << " says nothing";
    return findings;
  }
  std::vector<Finding> run(std::string_view check) { return run(check_named(check)); }
  // Remembers every value that this check finds now, as a run would.
  void remember(std::string_view check) {
    for (const Finding& one : run(check)) {
      if (one.value) before[{one.name, one.part}] = *one.value;
    }
  }
  // The finding of this check about this part, of which there must be one.
  Finding about(std::string_view check, std::string_view part, std::string_view name = "") {
    Finding found;
    int met = 0;
    for (const Finding& one : run(check)) {
      if (one.part != part || one.name != (name.empty() ? check : name)) continue;
      found = one;
      met++;
    }
    EXPECT_EQ(met, 1) << check << " about '" << part << "'";
    return found;
  }

  static constexpr const char* kRoot = "/machine";
  sim::SimClock clock{kNowNs};
  sim::SimDisk disk{1, clock};
  WatchedDisk watched{disk};
  Tree tree{watched, kRoot};
  SeededRng rng{1};
  std::optional<Inventory> inventory;
  int64_t since_ns = 0;
  std::string log_file;
  std::map<std::pair<std::string, std::string>, double> before;
};

// gtest assertions on what was found.
inline std::string told(const Finding& one) {
  return fmt::format("{} [{}] {}: found '{}', expected '{}' ({}); {}", one.name, one.part,
                     verdict_name(one.verdict), one.found, one.expected, one.source, one.hint);
}

// Every finding is of this verdict.
inline testing::AssertionResult all_are(const std::vector<Finding>& findings, Verdict verdict) {
  for (const Finding& one : findings) {
    if (one.verdict != verdict) return testing::AssertionFailure() << told(one);
  }
  return testing::AssertionSuccess();
}

// What is wrong has this verdict and these words, and says what should have been, who says so, and
// what to do.
inline testing::AssertionResult is_told(const Finding& one, Verdict verdict,
                                        std::string_view words) {
  if (one.verdict != verdict) return testing::AssertionFailure() << "not so: " << told(one);
  if (one.found.find(words) == one.found.npos) {
    return testing::AssertionFailure() << "no '" << words << "': " << told(one);
  }
  if (verdict == Verdict::pass || verdict == Verdict::skipped) return testing::AssertionSuccess();
  const bool judged = verdict != Verdict::could_not_run;
  if (one.hint.empty() || (judged && (one.expected.empty() || one.source.empty()))) {
    return testing::AssertionFailure() << "says too little: " << told(one);
  }
  return testing::AssertionSuccess();
}

}  // namespace ff::validate

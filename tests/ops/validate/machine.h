// A recorded machine (recorded.h) on a disk in memory, and one check run on it: its findings, given
// an inventory and the values of the last run.
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

// 2026-11-23T12:00:00Z, a day after the last log line of the machines.
constexpr int64_t kNowNs = 1'795'435'200 * kSecond;

// Checks without a result on a recorded tree: system calls and helpers describe the machine that
// runs the test.
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
  // Loads tests/ops/validate/trees/NAME.txt; empty: a machine without any input.
  explicit Machine(const std::string& name) {
    lay_out(disk, kRoot, name.empty() ? "/proc/\n" : recorded(name));
  }

  // Changes the tree (syntax: recorded.h).
  Machine& patch(std::string_view text) {
    lay_out(disk, kRoot, text);
    return *this;
  }
  Machine& adopt() {
    inventory = collect_inventory(tree);
    return *this;
  }
  // The findings of a check; at least one.
  std::vector<Finding> run(const Check& check) {
    std::vector<Finding> findings;
    const CheckContext context{.tree = tree,
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
  // Stores every value of this check as the last run.
  void remember(std::string_view check) {
    for (const Finding& one : run(check)) {
      if (one.value) before[{one.name, one.part}] = *one.value;
    }
  }
  // The single finding of this check about this part.
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
  SystemTree tree{watched, kRoot};
  SeededRng rng{1};
  std::optional<Inventory> inventory;
  int64_t since_ns = 0;
  std::string log_file;
  std::map<std::pair<std::string, std::string>, double> before;
};

// Assertions about findings.
inline std::string told(const Finding& one) {
  return fmt::format("{} [{}] {}: found '{}', expected '{}' ({}); {}", one.name, one.part,
                     verdict_name(one.verdict), one.found, one.expected, one.source, one.hint);
}

// Every finding has this verdict.
inline testing::AssertionResult all_are(const std::vector<Finding>& findings, Verdict verdict) {
  for (const Finding& one : findings) {
    if (one.verdict != verdict) return testing::AssertionFailure() << told(one);
  }
  return testing::AssertionSuccess();
}

// The finding has this verdict and text; if bad, it has an expected value, a source and a hint.
inline testing::AssertionResult is_finding(const Finding& one, Verdict verdict,
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

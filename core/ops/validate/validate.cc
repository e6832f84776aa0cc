// validate.cc: the steps of a run.
#include "ops/validate/validate.h"

#include <algorithm>

#include "ops/validate/interference.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr int kRetries = 2;  // repetitions of a degraded load

bool is_named(const Check& check, std::string_view name) {
  return name == check.group() || name == check.name;
}

Result<void> known(const std::vector<std::string>& asked) {
  std::vector<std::string> names;
  for (const Check& check : all_checks()) {
    names.emplace_back(check.name);
    if (std::ranges::find(names, check.group()) == names.end()) names.emplace_back(check.group());
  }
  for (const std::string& one : asked) {
    if (std::ranges::find(names, one) != names.end()) continue;
    Error error = fail(Errc::usage, "'{}' is no check and no group of checks", one);
    const std::string near = nearest(one, names);
    error.hint = std::string("`ff validate list` prints them.");
    if (!near.empty()) error.hint = fmt::format("Did you mean {}? {}", near, error.hint);
    return error;
  }
  return {};
}

// Turns what was not examined of a required check or group into failures; false: nothing of it ran.
bool enforce(std::vector<CheckResult>& results, const std::string& required) {
  bool ran = false, examined = false;
  for (const CheckResult& outcome : results) {
    if (!is_named(*outcome.check, required)) continue;
    ran = true;
    examined |= std::ranges::any_of(outcome.findings, [](const Finding& finding) {
      return finding.verdict != Verdict::skipped;
    });
  }
  for (CheckResult& outcome : results) {
    if (!is_named(*outcome.check, required)) continue;
    for (Finding& finding : outcome.findings) {
      const bool excused = finding.verdict == Verdict::skipped && examined;
      if (finding.verdict > Verdict::could_not_run || finding.verdict == Verdict::pass || excused) {
        continue;
      }
      if (finding.verdict == Verdict::skipped) {
        finding.hint =
            "If this node must have it, search the kernel log for the cause; if not, "
            "leave out --require.";
      }
      finding.verdict = Verdict::fail;
      finding.expected = "examined";
      finding.source = "--require " + required;
    }
  }
  return ran;
}

// The worst verdict; could-not-run if nothing ran.
Verdict worst_of(const std::vector<CheckResult>& results) {
  Verdict worst = results.empty() ? Verdict::could_not_run : Verdict::skipped;
  for (const CheckResult& outcome : results) {
    for (const Finding& finding : outcome.findings) worst = std::max(worst, finding.verdict);
  }
  return worst;
}

bool is_degraded(const CheckResult& outcome) {
  return std::ranges::find(outcome.findings, Verdict::degraded, &Finding::verdict) !=
         outcome.findings.end();
}

// One run, step by step.
class Running {
 public:
  Running(const SystemTree& tree, Clock& clock, const StopToken& stop, History* history,
          const ValidationRequest& request)
      : tree_(tree), clock_(clock), stop_(stop), history_(history), request_(request) {}

  Result<ValidationReport> run(const std::function<void(const CheckResult&)>& ended) {
    ValidationReport report{.host = tree_.maybe_text("/proc/sys/kernel/hostname").value_or(""),
                            .log_file = request_.log_file,
                            .wall_ns = clock_.wall_ns(),
                            .level = request_.level};
    const int64_t began_ns = clock_.steady_ns();
    FF_TRY(compare_with_history());
    auto checks =
        select_checks(request_.level, request_.only, request_.budget_seconds, report.over_budget);
    if (!tree_.is_machine()) {
      std::erase_if(checks, [](const Check* check) { return check->cost == CheckCost::load; });
    }
    FF_TRY(report.results, run_some(std::move(checks), ended));
    for (CheckResult& outcome : report.results) FF_TRY(settle(outcome, ended));
    bool all_ran = true;
    for (const std::string& one : request_.required) all_ran &= enforce(report.results, one);
    report.verdict = all_ran ? worst_of(report.results) : Verdict::fail;
    report.seconds = to_seconds(clock_.steady_ns() - began_ns);
    if (tree_.is_machine() && !report.log_file.empty()) report.host.clear();
    if (auto done = record(report); !done) report.not_recorded = std::move(done).error();
    return report;
  }

 private:
  Result<void> compare_with_history() {
    boot_ = tree_.maybe_text("/proc/sys/kernel/random/boot_id").value_or("");
    if (history_ == nullptr) return {};
    FF_TRY(inventory_, history_->inventory());
    FF_TRY(previous_values_, history_->last_values(boot_));
    FF_TRY(since_ns_, history_->last_log());
    return {};
  }

  Result<std::vector<CheckResult>> run_some(std::vector<const Check*> checks,
                                            const std::function<void(const CheckResult&)>& ended) {
    const RunPlan plan{.checks = std::move(checks),
                       .level = request_.level,
                       .inventory = inventory_,
                       .since_ns = since_ns_,
                       .log_file = request_.log_file,
                       .scratch = request_.scratch,
                       .fault = request_.fault,
                       .allreduce_ranks = request_.allreduce_ranks,
                       .job = request_.force || !tree_.is_machine() ? "" : running_job(tree_),
                       .before =
                           [this](const std::string& name, const std::string& part) {
                             const auto found = previous_values_.find({name, part});
                             return found == previous_values_.end() ? std::nullopt
                                                                    : std::optional(found->second);
                           },
                       .progress = request_.progress};
    return run_checks(tree_, clock_, stop_, plan, ended);
  }

  Result<void> record(const ValidationReport& report) {
    // Injected faults say nothing about the node.
    if (history_ == nullptr || request_.fault != InjectedFault::none) return {};
    return history_->add({.wall_ns = report.wall_ns,
                          .boot = boot_,
                          .level = report.level,
                          .verdict = report.verdict,
                          .seconds = report.seconds},
                         report.findings());
  }

  // Compares with the history. A degraded load is measured again: a momentary disturbance is not a
  // fault.
  Result<void> settle(CheckResult& outcome, const std::function<void(const CheckResult&)>& ended) {
    CheckResult held = outcome;
    FF_TRY(hold(held));
    for (int i = 0; i < kRetries && outcome.check->cost == CheckCost::load && is_degraded(held);
         i++) {
      FF_TRY(const auto again, run_some({outcome.check}, ended));
      merge_best(outcome, again.front());
      held = outcome;
      FF_TRY(hold(held));
    }
    outcome = std::move(held);
    if (outcome.check->cost != CheckCost::load || !is_guest(tree_)) return {};
    for (Finding& finding : outcome.findings) {
      if (finding.verdict != Verdict::degraded || !finding.load.empty()) continue;
      finding.load =
          "possibly other virtual machines on the same host, which cannot be observed here";
    }
    return {};
  }

  Result<void> hold(CheckResult& outcome) {
    if (history_ == nullptr) return {};
    for (Finding& finding : outcome.findings) {
      if (finding.better == Better::neither || !finding.value) continue;
      FF_TRY(const auto before, history_->baseline(finding.name, finding.part));
      compare_with_baseline(finding, before);
    }
    return {};
  }

  const SystemTree& tree_;
  Clock& clock_;
  const StopToken& stop_;
  History* const history_;
  const ValidationRequest& request_;
  std::string boot_;
  std::optional<Inventory> inventory_;
  int64_t since_ns_ = 0;
  History::Values
      previous_values_;  // read before the first fork: children must not use the database
};

}  // namespace

std::vector<Finding> ValidationReport::findings() const {
  std::vector<Finding> all;
  for (const CheckResult& outcome : results) {
    all.insert(all.end(), outcome.findings.begin(), outcome.findings.end());
  }
  return all;
}

void merge_best(CheckResult& outcome, const CheckResult& again) {
  for (Finding& mine : outcome.findings) {
    const auto other = std::ranges::find_if(again.findings, [&](const Finding& one) {
      return one.name == mine.name && one.part == mine.part;
    });
    if (other == again.findings.end() || mine.verdict == Verdict::fail) continue;
    const bool valued = mine.value && other->value && mine.better != Better::neither;
    const bool better = valued && (mine.better == Better::higher ? *other->value > *mine.value
                                                                 : *other->value < *mine.value);
    const bool same = mine.verdict == other->verdict;
    const bool well = other->verdict == Verdict::pass && mine.verdict == Verdict::degraded;
    if (well || (same && better)) mine = *other;
  }
  // A failure that appeared only this time still counts.
  for (const Finding& one : again.findings) {
    if (one.verdict == Verdict::fail) outcome.findings.push_back(one);
  }
}

Result<ValidationReport> validate(const SystemTree& tree, Clock& clock, const StopToken& stop,
                                  History* history, const ValidationRequest& request,
                                  const std::function<void(const CheckResult&)>& ended) {
  FF_TRY(known(request.only));
  FF_TRY(known(request.required));
  return Running(tree, clock, stop, history, request).run(ended);
}

}  // namespace ff::validate

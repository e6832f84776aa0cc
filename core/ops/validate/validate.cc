// validate.cc: the order of a run.
#include "ops/validate/validate.h"

#include <algorithm>

#include "ops/validate/others.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"

namespace ff::validate {

namespace {

constexpr int kAgain = 2;  // how often a load that is degraded is measured again

Result<void> known(const std::vector<std::string>& asked, bool groups_alone) {
  std::vector<std::string> names;
  for (const Check& check : all_checks()) {
    if (!groups_alone) names.emplace_back(check.name);
    if (std::ranges::find(names, check.group()) == names.end()) names.emplace_back(check.group());
  }
  for (const std::string& one : asked) {
    if (std::ranges::find(names, one) != names.end()) continue;
    Error error = fail(Errc::usage, "'{}' is no {}", one,
                       groups_alone ? "group of checks" : "check and no group of checks");
    const std::string near = nearest(one, names);
    error.hint = std::string("`ff validate list` prints them.");
    if (!near.empty()) error.hint = fmt::format("Did you mean {}? {}", near, error.hint);
    return error;
  }
  return {};
}

// The worst; pass where all were skipped, and not where nothing ran.
Verdict worst_of(const std::vector<Outcome>& outcomes, const std::vector<std::string>& required) {
  Verdict worst = outcomes.empty() ? Verdict::could_not_run : Verdict::pass;
  for (const std::string& group : required) {
    const bool ran = std::ranges::any_of(
        outcomes, [&](const Outcome& outcome) { return outcome.check->group() == group; });
    if (!ran) worst = Verdict::fail;
  }
  for (const Outcome& outcome : outcomes) {
    const std::string_view group = outcome.check->group();
    const bool must = std::ranges::find(required, group) != required.end();
    for (const Finding& finding : outcome.findings) {
      const bool missing = must && finding.verdict == Verdict::could_not_run;
      worst = std::max(worst, missing ? Verdict::fail : finding.verdict);
    }
  }
  return worst;
}

bool is_degraded(const Outcome& outcome) {
  return std::ranges::find(outcome.findings, Verdict::degraded, &Finding::verdict) !=
         outcome.findings.end();
}

// One run, step by step.
class Running {
 public:
  Running(const Tree& tree, Clock& clock, const Stop& stop, History* history,
          const Request& request)
      : tree_(tree), clock_(clock), stop_(stop), history_(history), request_(request) {}

  Result<Report> run(const std::function<void(const Outcome&)>& ended) {
    Report report{.host = tree_.maybe_text("/proc/sys/kernel/hostname").value_or(""),
                  .wall_ns = clock_.wall_ns(),
                  .level = request_.level};
    const int64_t began_ns = clock_.steady_ns();
    FF_TRY(look_back());
    auto checks = choose(request_.level, request_.only, request_.budget_seconds, report.left_out);
    if (!tree_.is_machine()) {
      std::erase_if(checks, [](const Check* check) { return check->cost == Cost::load; });
    }
    FF_TRY(report.outcomes, run_some(std::move(checks), ended));
    for (Outcome& outcome : report.outcomes) FF_TRY(settle(outcome));
    report.verdict = worst_of(report.outcomes, request_.required);
    report.seconds = to_seconds(clock_.steady_ns() - began_ns);
    if (auto done = record(report); !done) report.not_recorded = std::move(done).error();
    return report;
  }

 private:
  Result<void> look_back() {
    boot_ = tree_.maybe_text("/proc/sys/kernel/random/boot_id").value_or("");
    if (history_ == nullptr) return {};
    FF_TRY(inventory_, history_->inventory());
    FF_TRY(befores_, history_->last_values(boot_));
    FF_TRY(since_ns_, history_->last_log());
    return {};
  }

  Result<std::vector<Outcome>> run_some(std::vector<const Check*> checks,
                                        const std::function<void(const Outcome&)>& ended) {
    const Plan plan{.checks = std::move(checks),
                    .level = request_.level,
                    .inventory = inventory_,
                    .since_ns = since_ns_,
                    .log_file = request_.log_file,
                    .scratch = request_.scratch,
                    .fault = request_.fault,
                    .sum_ranks = request_.sum_ranks,
                    .job = request_.force || !tree_.is_machine() ? "" : running_job(tree_),
                    .before = [this](const std::string& name, const std::string& part) {
                      const auto found = befores_.find({name, part});
                      return found == befores_.end() ? std::nullopt : std::optional(found->second);
                    }};
    return run_checks(tree_, clock_, stop_, plan, ended);
  }

  Result<void> record(const Report& report) {
    // What was broken on purpose says nothing of the node.
    if (history_ == nullptr || request_.fault != Fault::none) return {};
    return history_->add({.wall_ns = report.wall_ns,
                          .boot = boot_,
                          .log_file = request_.log_file,
                          .level = report.level,
                          .verdict = report.verdict,
                          .seconds = report.seconds},
                         report.findings());
  }

  // Holds it against the history. A load that is degraded is measured again: a moment's disturbance
  // is no fault.
  Result<void> settle(Outcome& outcome) {
    Outcome held = outcome;
    FF_TRY(hold(held));
    for (int i = 0; i < kAgain && outcome.check->cost == Cost::load && is_degraded(held); i++) {
      FF_TRY(const auto again, run_some({outcome.check}, [](const Outcome&) {}));
      keep_best(outcome, again.front());
      held = outcome;
      FF_TRY(hold(held));
    }
    outcome = std::move(held);
    if (outcome.check->cost != Cost::load || !is_guest(tree_)) return {};
    for (Finding& finding : outcome.findings) {
      if (finding.verdict != Verdict::degraded || !finding.load.empty()) continue;
      finding.load = "neighbours on this guest's host, of whom nothing is seen here";
    }
    return {};
  }

  Result<void> hold(Outcome& outcome) {
    if (history_ == nullptr) return {};
    for (Finding& finding : outcome.findings) {
      if (finding.better == Better::neither || !finding.value) continue;
      FF_TRY(const auto before, history_->baseline(finding.name, finding.part));
      hold_against(finding, before);
    }
    return {};
  }

  const Tree& tree_;
  Clock& clock_;
  const Stop& stop_;
  History* const history_;
  const Request& request_;
  std::string boot_;
  std::optional<Inventory> inventory_;
  int64_t since_ns_ = 0;
  History::Values befores_;  // read before the first child: it is not to touch the file
};

}  // namespace

std::vector<Finding> Report::findings() const {
  std::vector<Finding> all;
  for (const Outcome& outcome : outcomes) {
    all.insert(all.end(), outcome.findings.begin(), outcome.findings.end());
  }
  return all;
}

void keep_best(Outcome& outcome, const Outcome& again) {
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
  // What only showed now is no less true.
  for (const Finding& one : again.findings) {
    if (one.verdict == Verdict::fail) outcome.findings.push_back(one);
  }
}

Result<Report> validate(const Tree& tree, Clock& clock, const Stop& stop, History* history,
                        const Request& request, const std::function<void(const Outcome&)>& ended) {
  FF_TRY(known(request.only, false));
  FF_TRY(known(request.required, true));
  return Running(tree, clock, stop, history, request).run(ended);
}

}  // namespace ff::validate

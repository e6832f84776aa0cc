// forget.cc: plans which steps stay, and removes the others from the store.
//
// A step is removed by one rename of its folder to the trash, which prune and forget empty.
// `latest` is changed first, so that it never names a removed step. The plans of all runs are made
// before anything is changed.
#include "training/checkpoint/retention/forget.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "platform/base/units.h"
#include "platform/io/files.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/retention/maintenance.h"

namespace ff::checkpoint {
namespace {

struct RunPlan {
  std::string run;
  bool by_rules = false;
  bool blocked = false;      // none of its checkpoints is intact
  std::set<uint64_t> asked;  // named by the user
  std::vector<StepInfo> steps;
  std::map<uint64_t, std::vector<std::string>> kept;
  std::vector<uint64_t> forgotten;
};

class Forgetter {
 public:
  Forgetter(Context& context, const Store& store, const ForgetOptions& options)
      : context_(context), store_(store), options_(options) {}

  Result<std::vector<RunPlan>> plan();
  Result<void> apply(const RunPlan& plan);

 private:
  Result<std::map<std::string, RunPlan>> runs_concerned();
  Result<void> read_steps(RunPlan& plan);
  void keep_by_rules(RunPlan& plan);
  void choose(RunPlan& plan);
  Result<void> keep_newest_verified(RunPlan& plan);
  Result<std::optional<uint64_t>> newest_verified(const RunPlan& plan);
  Result<void> move_latest(const RunPlan& plan);
  bool has_rules() const {
    return options_.keep_last || options_.keep_every || options_.keep_within_ns;
  }

  Context& context_;
  const Store& store_;
  const ForgetOptions& options_;
};

Result<std::vector<RunPlan>> Forgetter::plan() {
  FF_TRY(auto runs, runs_concerned());
  std::vector<RunPlan> plans;
  for (auto& [run, plan] : runs) {
    if (options_.whole_runs) {
      FF_TRY(plan.forgotten, list_steps(context_.disk, store_, run));
      plans.push_back(std::move(plan));
      continue;
    }
    FF_TRY(read_steps(plan));
    keep_by_rules(plan);
    choose(plan);
    if (!plan.forgotten.empty()) FF_TRY(keep_newest_verified(plan));
    plans.push_back(std::move(plan));
  }
  return plans;
}

Result<void> Forgetter::keep_newest_verified(RunPlan& plan) {
  FF_TRY(const auto newest, newest_verified(plan));
  if (!newest) {
    plan.blocked = true;
    plan.forgotten.clear();
    plan.kept.clear();
    return {};
  }
  if (plan.asked.contains(*newest)) {
    return Error{Errc::refused,
                 fmt::format("{} is the newest verified checkpoint of its run",
                             StepName{plan.run, *newest}.text()),
                 fmt::format("Save or verify a newer one first; '--run {} --all' removes the run.",
                             plan.run)};
  }
  plan.kept[*newest].emplace_back("newest verified");
  choose(plan);
  return {};
}

Result<std::map<std::string, RunPlan>> Forgetter::runs_concerned() {
  std::map<std::string, RunPlan> runs;
  std::vector<std::string> ruled;
  if (has_rules() || options_.whole_runs) {
    FF_TRY(const auto all, list_runs(context_.disk, store_));
    ruled = options_.runs.empty() ? all : options_.runs;
    for (const auto& run : ruled) {
      if (std::find(all.begin(), all.end(), run) == all.end()) {
        return Error{Errc::not_found, fmt::format("no run '{}' in {}", run, store_.path()),
                     "'ff checkpoint list' lists the runs."};
      }
      runs[run].by_rules = true;
    }
  }
  for (const auto& text : options_.steps) {
    if (text.find('@') == text.npos) {
      return Error{Errc::usage, fmt::format("'{}' names no step", text),
                   "Name checkpoints to forget as RUN@STEP."};
    }
    FF_TRY(const auto name, resolve_step(context_.disk, store_, text));
    runs[name.run].asked.insert(name.step);
  }
  for (auto& [run, plan] : runs) plan.run = run;
  return runs;
}

Result<void> Forgetter::read_steps(RunPlan& plan) {
  FF_TRY(const auto steps, committed_steps(context_.disk, store_, plan.run));
  for (const uint64_t step : steps) {
    FF_TRY(context_.stop.check());
    FF_TRY(auto info, step_info(context_.disk, store_, {plan.run, step}));
    if (info.committed) plan.steps.push_back(std::move(info));
  }
  return {};
}

void Forgetter::keep_by_rules(RunPlan& plan) {
  uint64_t last_left = options_.keep_last.value_or(0);
  const int64_t now = context_.clock.wall_ns();
  for (auto info = plan.steps.rbegin(); info != plan.steps.rend(); ++info) {
    const uint64_t step = info->name.step;
    if (plan.asked.contains(step)) continue;
    auto keep = [&](std::string reason) { plan.kept[step].push_back(std::move(reason)); };
    if (!plan.by_rules) {
      keep("not named");
      continue;
    }
    if (!info->summary) {
      keep("its index is damaged; name it to forget it");  // its age cannot be known
      continue;
    }
    if (last_left > 0) {
      last_left--;
      keep(fmt::format("last {}", *options_.keep_last));
    }
    if (options_.keep_every && step % *options_.keep_every == 0) {
      keep(fmt::format("every {}", *options_.keep_every));
    }
    const int64_t age = now - info->summary->header.created_ns;
    if (options_.keep_within_ns && age <= *options_.keep_within_ns) {
      keep(fmt::format("within {}", format_duration(*options_.keep_within_ns)));
    }
  }
}

void Forgetter::choose(RunPlan& plan) {
  plan.forgotten.clear();
  for (const auto& info : plan.steps) {
    if (!plan.kept.contains(info.name.step)) plan.forgotten.push_back(info.name.step);
  }
}

// The checkpoint that stays in any case; nothing if none is intact.
Result<std::optional<uint64_t>> Forgetter::newest_verified(const RunPlan& plan) {
  for (auto info = plan.steps.rbegin(); info != plan.steps.rend(); ++info) {
    if (info->verified) return std::optional(info->name.step);
  }
  for (auto info = plan.steps.rbegin(); info != plan.steps.rend(); ++info) {
    FF_TRY(const auto report,
           verify(context_, store_.path(),
                  {.names = {info->name.text()}, .ff_version = options_.ff_version}));
    if (!report.intact.empty()) return std::optional(info->name.step);
  }
  return std::optional<uint64_t>();
}

// Sets `latest` to the newest step that stays (one may have been saved since the plan). A run that
// is removed loses it first.
Result<void> Forgetter::move_latest(const RunPlan& plan) {
  if (options_.whole_runs) {
    FF_TRY(ignore_not_found(context_.disk.remove(store_.latest_path(plan.run))));
    return context_.disk.sync_dir(store_.run_dir(plan.run));
  }
  const auto mark = read_latest(context_.disk, store_, plan.run);
  const std::set<uint64_t> going(plan.forgotten.begin(), plan.forgotten.end());
  if (!mark || !going.contains(mark->step)) return {};
  FF_TRY(const auto steps, committed_steps(context_.disk, store_, plan.run));
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const StepName name{plan.run, *step};
    if (going.contains(*step)) continue;
    const auto summary = read_summary(context_.disk, store_.index_path(name));
    if (summary) return write_latest(context_, store_, name, summary->end.index);
  }
  return Error{Errc::failed, fmt::format("run '{}' changed while forget made its plan", plan.run),
               "No step of this run was forgotten. Run the command again."};
}

Result<void> Forgetter::apply(const RunPlan& plan) {
  if (plan.forgotten.empty()) return {};
  FF_TRY(move_latest(plan));
  std::vector<std::string> trashed;
  for (const uint64_t step : plan.forgotten) {
    FF_TRY(context_.stop.check());
    trashed.push_back(new_trash_path(context_, store_, kTrashedStep));
    // Not there: a prune has removed the empty folder of an incomplete step.
    FF_TRY(
        ignore_not_found(context_.disk.rename(store_.step_dir({plan.run, step}), trashed.back())));
  }
  FF_TRY(context_.disk.sync_dir(store_.run_dir(plan.run)));
  FF_TRY(context_.disk.sync_dir(store_.trash_dir()));
  for (const auto& path : trashed) FF_TRY(io::remove_tree(context_.disk, path));
  // Another save may have written `latest` since move_latest().
  FF_TRY(update_latest(context_, store_, plan.run));
  if (options_.whole_runs) (void)context_.disk.remove_dir(store_.run_dir(plan.run));
  return {};
}

Result<void> check_forget_options(const ForgetOptions& options) {
  const bool rules = options.keep_last || options.keep_every || options.keep_within_ns;
  if (options.whole_runs) {
    if (!rules && options.steps.empty() && !options.runs.empty()) return {};
    return Error{Errc::usage, "--all removes whole runs, which --run names",
                 "Give --run RUN --all, without rules and without names of steps."};
  }
  if (!rules && options.steps.empty()) {
    return Error{
        Errc::usage, "no rule and no step is given",
        "Give --keep-last, --keep-every or --keep-within, name RUN@STEP to forget, or give "
        "--run RUN --all to remove a run."};
  }
  if (!rules && !options.runs.empty()) {
    return Error{Errc::usage,
                 "--run is for the rules --keep-last, --keep-every, --keep-within and --all",
                 "Name RUN@STEP, or give --run RUN with a rule or with --all."};
  }
  if (options.keep_every == uint64_t{0}) {
    return Error{Errc::usage, "--keep-every 0: no step is divisible by it", {}};
  }
  return {};
}

}  // namespace

Result<ForgetReport> forget(Context& context, const std::string& store_path,
                            const ForgetOptions& options) {
  FF_TRY(check_forget_options(options));
  const int64_t began = context.clock.steady_ns();
  FF_TRY(const auto store, Store::open(context.disk, store_path));
  // Two at the same time could each remove the checkpoint on which the other's plan relies.
  std::unique_ptr<io::File> lock;
  if (options.apply) {
    FF_TRY(lock, lock_store(context.disk, store, "forget"));
  }
  Forgetter forgetter(context, store, options);
  FF_TRY(const auto plans, forgetter.plan());
  ForgetReport report;
  for (const auto& plan : plans) {
    for (const auto& [step, reasons] : plan.kept) {
      report.kept.push_back({{plan.run, step}, reasons});
    }
    for (const uint64_t step : plan.forgotten) report.forgotten.push_back({plan.run, step});
    if (plan.blocked) report.blocked.push_back({plan.run, plan.steps.size()});
    if (options.apply) FF_TRY(forgetter.apply(plan));
  }
  report.applied = options.apply;
  report.elapsed_ns = context.clock.steady_ns() - began;
  return report;
}

}  // namespace ff::checkpoint

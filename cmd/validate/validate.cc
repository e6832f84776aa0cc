// `ff validate`: runs checks, sets the exit code, and notifies others.
#include "cmd/validate/validate.h"

#include <algorithm>

#include "cmd/validate/host_allreduce.h"
#include "ops/scheduler/node_checks.h"
#include "platform/base/clock.h"
#include "platform/base/state_dir.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/net/resolve.h"

namespace ff::cmd {
namespace {

using validate::Verdict;

constexpr int64_t kPrologNs = 30 * kSecond;
constexpr int64_t kNotifyNs = 10 * kSecond;

struct RunOptions {
  std::string level = "quick";
  std::vector<std::string> only, require;
  std::optional<int64_t> budget_ns, splay_ns;
  std::optional<std::string> log, scratch, root, textfile, notify;
  bool degraded_ok = false, force = false, prolog = false;
  DrainOptions drain;
};

// A delay that is constant for a host and differs between hosts.
int64_t delay_of(std::string_view host, int64_t splay_ns) {
  const int64_t seconds = splay_ns / kSecond;
  if (seconds <= 0) return 0;
  return static_cast<int64_t>(fnv1a(host) % static_cast<uint64_t>(seconds)) * kSecond;
}

std::vector<std::string> names_with(const validate::ValidationReport& report, Verdict verdict) {
  std::vector<std::string> names;
  for (const validate::CheckResult& outcome : report.results) {
    const bool any = std::ranges::any_of(outcome.findings, [&](const validate::Finding& finding) {
      return finding.verdict == verdict;
    });
    if (any) names.emplace_back(outcome.check->name);
  }
  return names;
}

// With --degraded-ok, degraded counts as pass.
Verdict exit_verdict(const validate::ValidationReport& report, bool degraded_ok) {
  if (report.verdict != Verdict::degraded || !degraded_ok) return report.verdict;
  const bool any_missing = !names_with(report, Verdict::could_not_run).empty();
  return any_missing ? Verdict::could_not_run : Verdict::pass;
}

// The error for the exit code.
Result<void> conclude(const validate::ValidationReport& report, const RunOptions& options) {
  const Verdict verdict = exit_verdict(report, options.degraded_ok);
  const auto missing = names_with(report, Verdict::could_not_run);
  if (options.prolog && verdict != Verdict::fail) return {};
  if (verdict == Verdict::pass || verdict == Verdict::skipped) return {};
  if (report.results.empty()) {
    return Error{Errc::incomplete, "nothing was checked",
                 report.over_budget.empty() ? "ff cannot run load tests on a recorded tree."
                                            : "Give a longer --budget."};
  }
  if (verdict == Verdict::could_not_run) {
    return Error{Errc::incomplete, fmt::format("could not run: {}", fmt::join(missing, ", ")),
                 "See the list above for what each check needs. If the machine has no such part: "
                 "ff validate adopt"};
  }
  std::vector<std::string> bad = names_with(report, verdict);
  if (bad.empty()) bad = missing.empty() ? options.require : missing;  // groups of --require
  const std::string node = options.log ? fmt::format("{}: the node of this log", *options.log)
                                       : std::string("this node");
  return Error{
      Errc::fault,
      fmt::format("{} is {}: {}", node, verdict == Verdict::fail ? "not fit for work" : "degraded",
                  fmt::join(bad, ", ")),
      "See the list above for what to do."};
}

validate::ValidationRequest request_of(const RunOptions& options, const std::string& state) {
  validate::ValidationRequest request{.only = options.only, .required = options.require};
  request.level = validate::parse_run_level(options.level).value_or(validate::RunLevel::quick);
  const std::optional<int64_t> budget_ns =
      options.prolog && !options.budget_ns ? std::optional(kPrologNs) : options.budget_ns;
  if (budget_ns) request.budget_seconds = to_seconds(*budget_ns);
  request.force = options.force;
  request.log_file = options.log.value_or("");
  request.scratch = options.scratch.value_or(state);
  request.allreduce_ranks = host_allreduce_ranks();
  return request;
}

bool is_recorded_tree(const RunOptions& options) {
  return options.root && !options.root->empty() && *options.root != "/";
}

// Publishes the run.
Result<void> publish_report(Session& session, const RunOptions& options,
                            const validate::ValidationReport& report) {
  if (options.textfile && (is_recorded_tree(options) || options.log)) {
    session.out.note("ff does not write {}/ff_validate.prom: the records may be of another machine",
                     *options.textfile);
  } else if (options.textfile) {
    FF_TRY(write_textfile(*options.textfile, report));
  }
  const bool well = report.verdict == Verdict::pass || report.verdict == Verdict::skipped;
  if (!options.notify || well) return {};
  if (auto told = post_json(*options.notify, report_json(report), kNotifyNs); !told) {
    session.out.warn("{}", told.error().message);
  }
  return {};
}

Result<void> publish_verdict(Session& session, const RunOptions& options,
                             const validate::ValidationReport& report) {
  scheduler::CheckVerdicts found;
  for (const validate::CheckResult& outcome : report.results) {
    for (const validate::Finding& finding : outcome.findings) {
      Verdict& worst = found[std::string(outcome.check->name)];
      worst = std::max(worst, finding.verdict);
    }
  }
  // As for the exit code.
  const Verdict verdict = exit_verdict(report, options.degraded_ok || options.prolog);
  scheduler::wire::Verdict told = scheduler::make_verdict(verdict, found);
  if (told.failed().empty()) {
    for (const std::string& group : options.require) told.add_failed(group);
  }
  if (report.results.empty()) told.set_text("nothing was checked");
  FF_TRY(Json done, report_to_scheduler(session, options.drain, told));
  Json data = report_json(report);
  data["scheduler"] = std::move(done);
  session.out.data(std::move(data));
  return {};
}

Result<void> finish(Session& session, const RunOptions& options,
                    const validate::ValidationReport& report) {
  show_report(session, report);
  Result<void> drained;
  if (options.drain.drain) drained = publish_verdict(session, options, report);
  FF_TRY(publish_report(session, options, report));
  Result<void> concluded = conclude(report, options);
  if (concluded || drained) return concluded ? drained : concluded;
  // The verdict takes precedence over this error.
  session.out.warn("{}", drained.error().message);
  return concluded;
}

// Concurrent runs would disturb each other.
Result<std::unique_ptr<io::File>> alone(io::Disk& disk, const std::string& state) {
  FF_TRY(auto lock, io::lock_file(disk, io::join(state, "validate.lock")));
  if (lock) return lock;
  return Error{Errc::busy, "another ff validate is running on this machine",
               "Wait until it has finished."};
}

// "12 of 27 checks done, memory.pattern for 14 s of about 30 s, 3 others beside it".
std::string progress_text(const validate::RunProgress& now, validate::RunLevel level) {
  std::string text = fmt::format("{} of {} checks done", now.done, now.total);
  if (now.check == nullptr) return text;
  text += fmt::format(", {} for {:.0f} s", now.check->name, now.seconds);
  const double usual = now.check->seconds_at(level);
  if (usual >= 2) text += fmt::format(" of about {:.0f} s", usual);
  if (now.beside > 0) text += fmt::format(", {} beside it", now.beside);
  return text;
}

// Runs the checks and shows their progress. `history`: null for what was recorded elsewhere.
Result<validate::ValidationReport> run_checks(Session& session, const validate::SystemTree& tree,
                                              validate::History* history,
                                              validate::ValidationRequest request) {
  Output& out = session.out;
  request.progress = [&out, level = request.level](const validate::RunProgress& now) {
    out.status(progress_text(now, level));
  };
  auto report =
      validate::validate(tree, session.stop.clock(), session.stop, history, request,
                         [&out](const validate::CheckResult& outcome) {
                           out.detail("{}: {:.1f} s", outcome.check->name, outcome.seconds);
                         });
  out.status("");
  return report;
}

// A saved log and a recorded tree may be of any machine: nothing of such a run is filed as one of
// this node, and it runs beside one.
Result<void> run_on_records(Session& session, const RunOptions& options, io::Disk& disk) {
  const validate::SystemTree tree(disk, is_recorded_tree(options) ? *options.root : "/");
  if (!tree.exists("/proc") && !tree.exists("/sys")) {
    return fail(Errc::not_found, "{}: contains neither proc nor sys", *options.root);
  }
  validate::ValidationRequest request = request_of(options, "");
  if (!is_recorded_tree(options)) {
    constexpr std::string_view kLog = "log", kLogCheck = "log.kernel";
    for (const std::string& one : options.only) {
      if (one == kLog || one == kLogCheck) continue;
      return Error{
          Errc::usage,
          fmt::format("--log checks the saved log only, and --only {} is of this machine", one),
          "Run it a second time without --log."};
    }
    request.only = {std::string(kLog)};
  }
  FF_TRY(const auto report, run_checks(session, tree, nullptr, std::move(request)));
  return finish(session, options, report);
}

Result<void> run_validate(Session& session, const RunOptions& options) {
  if (options.notify) FF_TRY(check_hook(*options.notify));
  io::SystemDisk disk;
  const bool recorded = is_recorded_tree(options) || options.log;
  if (options.drain.drain) FF_TRY(check_drain(options.drain, recorded));
  if (recorded) return run_on_records(session, options, disk);
  if (options.splay_ns) {
    const int64_t delay_ns = delay_of(net::host_name(), *options.splay_ns);
    if (delay_ns > 0) session.out.note("starting in {}", format_duration(delay_ns));
    FF_TRY(session.stop.sleep_ns(delay_ns));
  }
  FF_TRY(NodeHistory node, open_node_history(session));
  FF_TRY(const auto lock, alone(disk, node.dir));
  const validate::SystemTree tree(disk, "/");
  FF_TRY(const auto report,
         run_checks(session, tree, &node.history, request_of(options, node.dir)));
  if (report.not_recorded) {
    session.out.warn("ff could not record this run: {}", report.not_recorded->message);
  }
  return finish(session, options, report);
}

void declare_options(Command& run, RunOptions& o) {
  run.option("--level", choice(o.level, {"quick", "weekly", "burn-in"}),
             "Duration of load tests: quick takes seconds, weekly minutes, burn-in an hour")
      .config("validate.level")
      .env("FF_VALIDATE_LEVEL");
  run.option("--only", text(o.only, "NAME"), "Run only this check or group of checks");
  run.option("--budget", duration(o.budget_ns),
             "Run only checks that fit into this time, the most productive ones first");
  run.option("--require", text(o.require, "NAME"),
             "This check, or something of this group of checks, must run: what could not run has "
             "failed, also if the node was adopted without the part");
  run.flag("--degraded-ok", o.degraded_ok, "Exit with 0 if the node is no worse than degraded");
  run.flag("--force", o.force, "Run load tests even while a job uses the node");
  run.flag("--prolog", o.prolog,
           "For the prolog of a job scheduler: limits the time to 30 s unless --budget is given, "
           "and reports only failed checks as errors");
  run.option("--log", file(o.log),
             "Check only this saved kernel log, perhaps of another machine, without history");
  run.option("--scratch", dir(o.scratch),
             "Measure the disk or mount of this directory; without it the state directory")
      .config("validate.scratch")
      .env("FF_VALIDATE_SCRATCH");
  run.option("--root", dir(o.root),
             "Check a copy of another machine's /proc and /sys below this directory, without load "
             "tests and history");
  run.option("--textfile", dir(o.textfile),
             "Write ff_validate.prom to this directory, for Prometheus")
      .config("validate.textfile")
      .env("FF_VALIDATE_TEXTFILE");
  run.option("--notify", text(o.notify, "URL"),
             "Post the report as JSON to this URL unless everything passes. Put a URL with a "
             "secret into the setting")
      .config("validate.notify")
      .env("FF_VALIDATE_NOTIFY");
  run.option("--splay", duration(o.splay_ns),
             "First wait up to this long, depending on the host name, so that the nodes of a "
             "cluster do not run their checks at the same time");
  declare_validate_drain(run, o.drain);
}

}  // namespace

Result<NodeHistory> open_node_history(Session& session) {
  FF_TRY(const auto state, state_dir(StateUse::user, process_state_environment()));
  if (!state.network_path.empty()) {
    session.out.note("{} is on a network file system: the history of this node is in {}",
                     state.network_path, state.path);
  }
  FF_TRY(auto history,
         validate::History::open(io::join(state.path, "validate.db"), session.stop.clock()));
  if (!history.moved_aside().empty()) {
    session.out.warn(
        "the history of this node was corrupt: ff starts a new one and keeps the old one as {}",
        history.moved_aside());
  }
  return NodeHistory{state.path, std::move(history)};
}

void declare_validate_run(Command& validate) {
  Command& run = validate.default_sub("run", "Check this node");
  auto& options = run.keep<RunOptions>();
  run.about(
      "Runs the checks of a level: first, in parallel, those that only read, then the load tests "
      "one by one. Each check has a deadline; a check that hangs is reported and does not stop the "
      "others. The verdict of the node is its worst finding:\n\n  pass           as it should be\n "
      " could-not-run  unknown: never counted as a pass\n  degraded       works, but worse than it "
      "should\n  fail           not fit for work\n\nExit code 3 means fail or degraded; 4 means "
      "that a check could not run and nothing was worse. ff compares the values of load tests with "
      "the last 20 runs of this node, once there are 5: a value is degraded if it deviates by more "
      "than 7 % and 4 median absolute deviations, and is 7 % below all of them. Run it as root; "
      "otherwise it reports what it could not see.\n\nWith --drain ff reports the verdict to the "
      "scheduler ('ff schedule serve'): a node that failed, or is degraded without --degraded-ok, "
      "gets no new tasks, and the scheduler asks the task on it to save and exit. The node returns "
      "to service when a run passes that covers all failed checks, unless the operator drained it "
      "as well. --drain requires the cluster key. If ff cannot reach the scheduler, a run that "
      "passed exits with that error, and any other run with its own exit code.");
  run.example("ff validate", "check this node within seconds");
  run.example("ff validate --level weekly --textfile /var/lib/node_exporter", "for cron");
  run.example("ff validate --only pci --only gpu", "two groups of checks");
  run.example("ff validate --drain --scheduler s1:4500 --key cluster.key",
              "drain this node in the scheduler if it is bad, and undrain it when it is good");
  run.example("ff validate --prolog", "in a Slurm prolog: a non-zero exit code drains the node");
  declare_options(run, options);
  run.blocking();
  run.run([&options](Session& session) { return run_validate(session, options); });
}

void declare_validate(Command& validate) {
  validate.about(
      "Finds bad hardware before a job does: processors that compute wrong results, memory errors, "
      "slow links, ports that flap, failing disks and GPUs, and errors in the kernel log. `ff "
      "validate` alone means `ff validate run`.\n\nWhen a node has all its parts, `ff validate "
      "adopt` records them: from then on a missing part fails, and ff does not ask for parts that "
      "the node never had.");
  validate.example("ff validate", "Check this node");
  validate.example("ff validate adopt", "record the parts of this node");
  validate.example("ff generate cron", "print a line for cron that checks the node once a week");
  declare_validate_run(validate);
  declare_validate_adopt(validate);
  declare_validate_list(validate);
  declare_validate_report(validate);
  declare_validate_xid(validate);
#ifdef FF_FAULTS
  declare_validate_faults(validate);
#endif
}

}  // namespace ff::cmd

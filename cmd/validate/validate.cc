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
                 report.over_budget.empty() ? "Loads cannot run on a recorded tree."
                                            : "Give a longer --budget."};
  }
  if (verdict == Verdict::could_not_run) {
    return Error{Errc::incomplete, fmt::format("could not run: {}", fmt::join(missing, ", ")),
                 "See the hint of each check. On a machine that has no such part: "
                 "ff validate adopt"};
  }
  std::vector<std::string> bad = names_with(report, verdict);
  if (bad.empty()) bad = missing.empty() ? options.require : missing;  // groups of --require
  return Error{
      Errc::fault,
      fmt::format("this node is {}: {}", verdict == Verdict::fail ? "not fit for work" : "degraded",
                  fmt::join(bad, ", ")),
      "See the hint of each check."};
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

// Publishes the run.
Result<void> publish_report(Session& session, const RunOptions& options,
                            const validate::ValidationReport& report) {
  if (options.textfile) FF_TRY(write_textfile(*options.textfile, report));
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
               "Wait until it has ended."};
}

Result<void> run_on_tree(Session& session, const RunOptions& options, io::Disk& disk) {
  const validate::SystemTree tree(disk, *options.root);
  if (!tree.exists("/proc") && !tree.exists("/sys")) {
    return fail(Errc::not_found, "{}: contains neither proc nor sys", *options.root);
  }
  FF_TRY(const auto report, validate::validate(tree, session.stop.clock(), session.stop, nullptr,
                                               request_of(options, ""), [](const auto&) {}));
  return finish(session, options, report);
}

Result<void> run_validate(Session& session, const RunOptions& options) {
  if (options.notify) FF_TRY(check_hook(*options.notify));
  io::SystemDisk disk;
  const bool recorded = options.root && !options.root->empty() && *options.root != "/";
  if (options.drain.drain) FF_TRY(check_drain(options.drain, recorded));
  if (recorded) return run_on_tree(session, options, disk);
  if (options.splay_ns) {
    const int64_t delay_ns = delay_of(net::host_name(), *options.splay_ns);
    if (delay_ns > 0) session.out.note("starting in {}", format_duration(delay_ns));
    FF_TRY(session.stop.sleep_ns(delay_ns));
  }
  FF_TRY(NodeHistory node, open_node_history(session));
  FF_TRY(const auto lock, alone(disk, node.dir));
  const validate::SystemTree tree(disk, "/");
  const auto ended = [&](const validate::CheckResult& outcome) {
    session.out.detail("{}: {:.1f} s", outcome.check->name, outcome.seconds);
  };
  FF_TRY(auto report, validate::validate(tree, session.stop.clock(), session.stop, &node.history,
                                         request_of(options, node.dir), ended));
  if (report.not_recorded) {
    session.out.warn("this run was not recorded: {}", report.not_recorded->message);
  }
  return finish(session, options, report);
}

void declare_options(Command& run, RunOptions& o) {
  run.option("--level", choice(o.level, {"quick", "weekly", "burn-in"}),
             "How long loads go on: a few seconds in all, some minutes, an hour")
      .config("validate.level")
      .env("FF_VALIDATE_LEVEL");
  run.option("--only", text(o.only, "NAME"), "Only this check, or group of checks");
  run.option("--budget", duration(o.budget_ns),
             "Take only checks that fit into this time, those that find most in it first");
  run.option("--require", text(o.require, "GROUP"),
             "What could not run in this group counts as failed");
  run.flag("--degraded-ok", o.degraded_ok, "Exit with 0 when the node is no worse than degraded");
  run.flag("--force", o.force, "Put loads on the node while a job runs on it, too");
  run.flag("--prolog", o.prolog,
           "For a scheduler, before a job: 30 s at most unless --budget says other, and only what "
           "failed is an error");
  run.option("--log", file(o.log), "Read this saved log of a kernel, whole, not this machine's");
  run.option("--scratch", dir(o.scratch),
             "Measure the disk that holds this folder, or the mount; the state folder otherwise")
      .config("validate.scratch")
      .env("FF_VALIDATE_SCRATCH");
  run.option("--root", dir(o.root),
             "Look at a copy of another machine's /proc and /sys below this folder: no loads, no "
             "history");
  run.option("--textfile", dir(o.textfile), "Leave ff_validate.prom there, for Prometheus")
      .config("validate.textfile")
      .env("FF_VALIDATE_TEXTFILE");
  run.option("--notify", text(o.notify, "URL"),
             "Post the report there as JSON unless all is well. URLs with a secret belong into the "
             "setting")
      .config("validate.notify")
      .env("FF_VALIDATE_NOTIFY");
  run.option("--splay", duration(o.splay_ns),
             "Wait first, up to this long, by the host's name: a fleet does not test at once");
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
        "the history of this node was corrupt: a new one was started, the old one is {}",
        history.moved_aside());
  }
  return NodeHistory{state.path, std::move(history)};
}

void declare_validate_run(Command& validate) {
  Command& run = validate.default_sub("run", "Check this node");
  auto& options = run.keep<RunOptions>();
  run.about(
      "Runs the checks of a level, first those that only read, side by side, then loads one by "
      "one. Each has a deadline: one that hangs is named and stops nothing else. The node's "
      "verdict is the worst of its findings:\n\n"
      "  pass           as it should be\n"
      "  could-not-run  nobody knows: never counted as a pass\n"
      "  degraded       works, and worse than it should\n"
      "  fail           not fit for work\n\n"
      "Exit code 3 says fail or degraded, 4 that something could not run and nothing was worse. "
      "Values of loads are held against the last 20 runs of this node once there are 5: beyond 7 % "
      "and 4 median absolute deviations, and 7 % below all of them, they are degraded. Run it as "
      "root, or it says what it "
      "could not see.\n\n"
      "With --drain the scheduler ('ff schedule serve') hears the verdict: a node that has failed, "
      "or is degraded without --degraded-ok, gets no more tasks, and a task that it has is asked "
      "to save and leave. It is back in service once a run has passed that looked at all that had "
      "failed, unless it was drained by hand, too. The operator's cluster key is needed. When the "
      "scheduler cannot be told, a run that passed exits with that error, and any other with its "
      "own.");
  run.example("ff validate", "A look at this node, in seconds");
  run.example("ff validate --level weekly --textfile /var/lib/node_exporter", "For cron");
  run.example("ff validate --only pci --only gpu", "Two groups of checks");
  run.example("ff validate --drain --scheduler s1:4500 --key cluster.key",
              "A node of the scheduler's, out of service when it is bad, and back when it is well");
  run.example("ff validate --prolog", "In a prolog of Slurm: non-zero, and the node is drained");
  declare_options(run, options);
  run.blocking();
  run.run([&options](Session& session) { return run_validate(session, options); });
}

void declare_validate(Command& validate) {
  validate.about(
      "Finds bad hardware before a job does: processors that compute wrongly, memory that forgets, "
      "links that came up slow, ports that flap, disks and GPUs that fail, and what the kernel has "
      "said of any of them. `ff validate` alone is `ff validate run`.\n\n"
      "Once a node is known to have all its parts, `ff validate adopt` writes them down: what is "
      "gone later has failed, and what was never there is no longer asked for.");
  validate.example("ff validate", "Check this node");
  validate.example("ff validate adopt", "Its parts are right as they are now");
  validate.example("ff help --emit cron", "A line for cron, once a week");
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

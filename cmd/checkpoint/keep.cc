// `ff checkpoint verify`, `forget` and `prune`: checks checkpoints and removes old ones.
#include "cmd/checkpoint/checkpoint.h"
#include "cmd/cli/build_info.h"
#include "cmd/cli/confirm.h"
#include "platform/base/units.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/retention/forget.h"
#include "training/checkpoint/retention/prune.h"

namespace ff::cmd {
namespace {

Json names_json(const std::vector<checkpoint::StepName>& names) {
  Json list = Json::array();
  for (const auto& name : names) list.push_back(name.text());
  return list;
}

struct VerifyArguments {
  checkpoint::VerifyOptions options;
  std::string sample = "100%";
};

// "5%" or "0.05" -> 0.05.
Result<double> parse_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  auto value = read_number<double>(text);
  if (value && percent) *value /= 100;
  if (value && *value > 0 && *value <= 1) return value;
  return Error{Errc::usage, "--sample: expected a share above 0% and up to 100%", "Example: 5%"};
}

Json verify_json(const checkpoint::VerifyReport& report) {
  Json damage = Json::array();
  for (const auto& found : report.damage) {
    damage.push_back({{"where", found.where}, {"reason", found.reason}, {"holds", found.holds}});
  }
  return {{"intact", names_json(report.intact)},
          {"damaged", names_json(report.damaged)},
          {"damage", std::move(damage)},
          {"chunks", report.chunks},
          {"chunks_total", report.chunks_total},
          {"bytes", report.bytes},
          {"seconds", to_seconds(report.elapsed_ns)}};
}

Result<void> run_verify(Session& session, const CheckpointOptions& common,
                        VerifyArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  FF_TRY(arguments.options.sample, parse_share(arguments.sample));
  arguments.options.ff_version = kBuildInfo.version;
  if (arguments.options.names.empty() && !arguments.options.all) {
    arguments.options.names = {"default"};
  }
  auto bar = run.bar("verify");
  FF_TRY(const auto report, checkpoint::verify(run.context(), store, arguments.options));
  bar.reset();
  session.out.data(verify_json(report));
  for (const auto& name : report.intact) session.out.line("{}: intact", name.text());
  for (const auto& name : report.damaged) session.out.line(Color::red, "{}: DAMAGED", name.text());
  for (const auto& found : report.damage) {
    session.out.line(Color::red, "{}: {}{}{}", found.where, found.reason,
                     found.holds.empty() ? "" : "; it holds ", found.holds);
  }
  const auto device = load_device_speed(run.context().clock, store);
  session.out.note("read {} of {} chunks, {}", format_count(report.chunks),
                   format_count(report.chunks_total),
                   format_speed(report.bytes, report.elapsed_ns,
                                device ? std::optional(device->read) : std::nullopt));
  if (report.damage.empty()) return {};
  return Error{Errc::corrupt, fmt::format("{} damaged places in {}", report.damage.size(), store),
               "'ff checkpoint salvage' restores what is intact."};
}

struct ForgetArguments {
  checkpoint::ForgetOptions options;
  bool dry_run = false;
  bool yes = false;
};

void report_forget(Session& session, const checkpoint::ForgetReport& report) {
  Json kept = Json::array();
  {
    auto table = session.out.table({{"STEP"}, {"ACTION"}, {"WHY"}});
    for (const auto& step : report.kept) {
      kept.push_back({{"name", step.name.text()}, {"reasons", step.reasons}});
      table.row({step.name.text(), "keep", fmt::format("{}", fmt::join(step.reasons, ", "))});
    }
    for (const auto& name : report.forgotten) {
      table.row({name.text(), {report.applied ? "forgotten" : "forget", Color::yellow}, ""});
    }
  }
  session.out.data({{"applied", report.applied},
                    {"kept", std::move(kept)},
                    {"forgotten", names_json(report.forgotten)}});
  if (report.applied && !report.forgotten.empty()) {
    session.out.note("'ff checkpoint prune' frees their space");
  }
}

// Prints what will be removed, then asks, unless --yes or --dry-run is given.
Result<void> run_forget(Session& session, const CheckpointOptions& common,
                        ForgetArguments& arguments) {
  if (arguments.yes && arguments.dry_run) {
    return fail(Errc::usage, "--yes and --dry-run exclude each other");
  }
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  checkpoint::ForgetOptions& options = arguments.options;
  options.ff_version = kBuildInfo.version;
  options.apply = arguments.yes;
  auto bar = run.bar("forget");
  FF_TRY(auto report, checkpoint::forget(run.context(), store, options));
  bar.reset();
  report_forget(session, report);
  const size_t count = report.forgotten.size();
  if (report.applied || count == 0) return {};
  if (arguments.dry_run) {
    session.out.note("dry run: nothing was changed; {} would be removed", count);
    return {};
  }
  const std::string what =
      count == 1 ? std::string("this checkpoint") : fmt::format("these {} checkpoints", count);
  FF_TRY(confirm(session, false, fmt::format("Type yes to remove {}:", what), "yes",
                 NonInteractive::refuse));
  // Remove exactly what was printed: steps saved meanwhile do not change it.
  checkpoint::ForgetOptions confirmed;
  confirmed.apply = true;
  confirmed.ff_version = options.ff_version;
  for (const auto& name : report.forgotten) confirmed.steps.push_back(name.text());
  bar = run.bar("forget");
  FF_TRY(report, checkpoint::forget(run.context(), store, confirmed));
  bar.reset();
  session.out.note("removed {}; 'ff checkpoint prune' frees the space", report.forgotten.size());
  return {};
}

Json leases_json(const std::vector<checkpoint::LeaseInfo>& leases) {
  Json list = Json::array();
  for (const auto& lease : leases) {
    list.push_back({{"action", lease.action}, {"run", lease.run}, {"step", lease.step}});
  }
  return list;
}

void print_prune(Output& out, const checkpoint::PruneReport& report, bool dry_run) {
  out.line("{} {} chunks, {}", dry_run ? "would delete" : "deleted",
           format_count(report.chunks_deleted), format_size(report.bytes_deleted));
  for (const auto& attempt : report.abandoned) {
    out.line("{}: attempt '{}' was abandoned: {} of {} ranks had saved", attempt.name.text(),
             attempt.attempt, attempt.present.size(), attempt.world);
  }
  for (const auto& lease : report.overdue) {
    out.line("removed the lease of a {} of {}@{} that makes no progress", lease.action, lease.run,
             lease.step);
  }
  if (report.chunks_deferred > 0) {
    out.line("{} chunks, {}, stay in the trash because of {} running actions",
             format_count(report.chunks_deferred), format_size(report.bytes_deferred),
             report.running.size());
  }
  if (report.chunks_recent > 0) {
    out.line("{} unused chunks, {}, are younger than --grace", format_count(report.chunks_recent),
             format_size(report.bytes_recent));
  }
}

Result<void> run_prune(Session& session, const CheckpointOptions& common,
                       const checkpoint::PruneOptions& options) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  FF_TRY(const auto report, checkpoint::prune(run.context(), store, options));
  Json abandoned = Json::array();
  for (const auto& attempt : report.abandoned) {
    abandoned.push_back({{"name", attempt.name.text()},
                         {"attempt", attempt.attempt},
                         {"world", attempt.world},
                         {"present", attempt.present}});
  }
  session.out.data({{"dry_run", options.dry_run},
                    {"chunks_deleted", report.chunks_deleted},
                    {"bytes_deleted", report.bytes_deleted},
                    {"chunks_waiting", report.chunks_deferred},
                    {"bytes_waiting", report.bytes_deferred},
                    {"chunks_recent", report.chunks_recent},
                    {"bytes_recent", report.bytes_recent},
                    {"chunks_restored", report.chunks_restored},
                    {"leftovers", report.leftovers},
                    {"running", leases_json(report.running)},
                    {"overdue", leases_json(report.overdue)},
                    {"abandoned", std::move(abandoned)},
                    {"seconds", to_seconds(report.elapsed_ns)}});
  print_prune(session.out, report, options.dry_run);
  return {};
}

}  // namespace

void declare_checkpoint_verify(Command& checkpoint, CheckpointOptions& common) {
  auto& verify = checkpoint.sub("verify", "Read and check all data of checkpoints");
  auto& arguments = verify.keep<VerifyArguments>();
  verify.about(
      "Reads all chunks of the named checkpoints (default: the latest of run 'default') and checks "
      "their CRC32C and digests. The command reports damage by tensor, file and chunk, and then "
      "exits with 3. It marks an intact checkpoint as verified. --all checks every checkpoint and "
      "the store's own files.");
  verify.argument("NAME", text(arguments.options.names, "NAME"), "RUN[@STEP]").optional();
  verify.flag("--all", arguments.options.all, "Check every checkpoint in the store");
  verify.option("--sample", text(arguments.sample, "SHARE"),
                "Read only a random share of the chunks, such as 5%; marks nothing as verified");
  verify.example("ff checkpoint verify --store /data/ckpt --all", "weekly, from cron");
  verify.blocking();
  verify.run([&common, &arguments](Session& s) { return run_verify(s, common, arguments); });
}

void declare_checkpoint_forget(Command& checkpoint, CheckpointOptions& common) {
  auto& forget = checkpoint.sub("forget", "Remove checkpoints that no rule keeps");
  auto& arguments = forget.keep<ForgetArguments>();
  checkpoint::ForgetOptions& options = arguments.options;
  forget.about(
      "Shows which checkpoints the rules keep and which it removes, asks for confirmation on a "
      "terminal, and removes them. Without a terminal it requires --yes or --dry-run. A checkpoint "
      "stays if any rule keeps it. The newest verified checkpoint of each run always stays; if a "
      "run has none, ff first verifies the newest. The command removes each NAME regardless of "
      "rules. 'ff checkpoint prune' then frees the space.");
  forget.argument("NAME", text(options.steps, "NAME"), "RUN@STEP to remove").optional();
  forget.option("--run", text(options.runs, "RUN"), "Apply the rules only to these runs")
      .default_value("all");
  forget.option("--keep-last", number(options.keep_last, "N"), "Keep the N highest steps of a run");
  forget.option("--keep-every", number(options.keep_every, "N"), "Keep steps divisible by N");
  forget.option("--keep-within", duration(options.keep_within_ns),
                "Keep checkpoints saved within this time, such as 7d");
  forget.flag("-n,--dry-run", arguments.dry_run, "Only show what would be removed");
  declare_yes(forget, arguments.yes).alias("--apply");
  forget.example(
      "ff checkpoint forget --store /data/ckpt --keep-last 5 --keep-every 1000 --dry-run",
      "show what would be removed");
  forget.example("ff checkpoint forget --store /data/ckpt --keep-last 5 --keep-every 1000 --yes",
                 "remove it");
  forget.blocking();
  forget.run([&common, &arguments](Session& s) { return run_forget(s, common, arguments); });
}

void declare_checkpoint_prune(Command& checkpoint, CheckpointOptions& common) {
  auto& prune = checkpoint.sub("prune", "Delete chunks that no checkpoint uses");
  auto& options = prune.keep<checkpoint::PruneOptions>();
  prune.about(
      "Deletes chunks that no checkpoint uses, files that interrupted commands left, and attempts "
      "that are incomplete because some ranks never saved. You can run it beside saves and loads.");
  prune.option("--grace", duration(options.grace_ns),
               "Keep unused chunks that are younger than this");
  prune.option("--wait", duration(options.wait_ns),
               "Wait this long for running saves and loads; otherwise chunks that these may need "
               "stay in the trash until the next prune");
  prune.flag("-n,--dry-run", options.dry_run, "Only show what would be deleted");
  prune.example("ff checkpoint prune --store /data/ckpt", "after forget");
  prune.blocking();
  prune.run([&common, &options](Session& s) { return run_prune(s, common, options); });
}

}  // namespace ff::cmd

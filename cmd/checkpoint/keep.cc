// `ff checkpoint verify`, `forget` and `prune`: what keeps a store healthy and small.
#include "cmd/checkpoint/checkpoint.h"
#include "cmd/cli/build_info.h"
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
  return Error{Errc::usage, "--sample takes a share above 0% and up to 100%", "As in '5%'."};
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
  CheckpointRun run(session, common);
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
  const auto device = device_speed(run.context().clock, store);
  session.out.note("read {} of {} chunks, {}", format_count(report.chunks),
                   format_count(report.chunks_total),
                   speed_words(report.bytes, report.elapsed_ns,
                               device ? std::optional(device->read) : std::nullopt));
  if (report.damage.empty()) return {};
  return Error{Errc::corrupt, fmt::format("{} damaged places in {}", report.damage.size(), store),
               "'ff checkpoint salvage' restores what is intact."};
}

Result<void> run_forget(Session& session, const CheckpointOptions& common,
                        checkpoint::ForgetOptions& options) {
  CheckpointRun run(session, common);
  FF_TRY(const auto store, run.store());
  options.ff_version = kBuildInfo.version;
  auto bar = run.bar("forget");
  FF_TRY(const auto report, checkpoint::forget(run.context(), store, options));
  bar.reset();
  Json kept = Json::array();
  {
    auto table = session.out.table({{"STEP"}, {""}, {"WHY"}});
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
  if (report.applied) {
    if (!report.forgotten.empty()) {
      session.out.note("'ff checkpoint prune' gives their space back");
    }
  } else if (!report.forgotten.empty()) {
    session.out.note("nothing was changed; --apply forgets these {}", report.forgotten.size());
  }
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
    out.line("took away the lease of a {} of {}@{} that stands still", lease.action, lease.run,
             lease.step);
  }
  if (report.chunks_deferred > 0) {
    out.line("{} chunks, {}, wait in the trash for {} running actions",
             format_count(report.chunks_deferred), format_size(report.bytes_deferred),
             report.running.size());
  }
  if (report.chunks_recent > 0) {
    out.line("{} chunks, {}, are used by nothing but younger than --grace",
             format_count(report.chunks_recent), format_size(report.bytes_recent));
  }
}

Result<void> run_prune(Session& session, const CheckpointOptions& common,
                       const checkpoint::PruneOptions& options) {
  CheckpointRun run(session, common);
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
  auto& verify = checkpoint.sub("verify", "Read and check every byte of checkpoints");
  auto& arguments = verify.keep<VerifyArguments>();
  verify.about(
      "Reads all chunks of the named checkpoints (default: the latest of run 'default') and "
      "checks their CRC32C and digests. Damage is named by tensor, file and chunk, and the exit "
      "code is 3. An intact checkpoint is marked as verified. --all takes every checkpoint and "
      "the store's own files.");
  verify.argument("NAME", text(arguments.options.names, "NAME"), "RUN[@STEP]").optional();
  verify.flag("--all", arguments.options.all, "Every checkpoint in the store");
  verify.option("--sample", text(arguments.sample, "SHARE"),
                "Read only a random share of the chunks, as in 5%; nothing is marked then");
  verify.example("ff checkpoint verify --store /data/ckpt --all", "weekly, from cron");
  verify.blocking();
  verify.run([&common, &arguments](Session& s) { return run_verify(s, common, arguments); });
}

void declare_checkpoint_forget(Command& checkpoint, CheckpointOptions& common) {
  auto& forget = checkpoint.sub("forget", "Remove checkpoints that no rule keeps");
  auto& options = forget.keep<checkpoint::ForgetOptions>();
  forget.about(
      "Shows which checkpoints the rules keep and which they do not; with --apply those go. Rules "
      "add up. The newest verified checkpoint of each run always stays; when a run has none, the "
      "newest is verified first. NAMEs go whatever the rules. 'ff checkpoint prune' then frees "
      "the space.");
  forget.argument("NAME", text(options.steps, "NAME"), "RUN@STEP to forget").optional();
  forget.option("--run", text(options.runs, "RUN"), "Only these runs; default: all");
  forget.option("--keep-last", number(options.keep_last, "N"), "Keep the N highest steps of a run");
  forget.option("--keep-every", number(options.keep_every, "N"), "Keep steps divisible by N");
  forget.option("--keep-within", duration(options.keep_within_ns),
                "Keep what was saved within this time, as in 7d");
  forget.flag("--apply", options.apply, "Do it; without this nothing changes");
  forget.example("ff checkpoint forget --store /data/ckpt --keep-last 5 --keep-every 1000",
                 "look first");
  forget.example("ff checkpoint forget --store /data/ckpt --keep-last 5 --keep-every 1000 --apply",
                 "then do it");
  forget.blocking();
  forget.run([&common, &options](Session& s) { return run_forget(s, common, options); });
}

void declare_checkpoint_prune(Command& checkpoint, CheckpointOptions& common) {
  auto& prune = checkpoint.sub("prune", "Free the space of what no checkpoint uses");
  auto& options = prune.keep<checkpoint::PruneOptions>();
  prune.about(
      "Deletes chunks that no checkpoint uses, leftovers of actions that ended in the middle, and "
      "attempts whose ranks never came. Safe beside running saves and loads.");
  prune.option("--grace", duration(options.grace_ns), "Spare what is younger than this");
  prune.option("--wait", duration(options.wait_ns),
               "Wait this long for running saves and loads; what they may need stays in the trash "
               "until the next prune otherwise");
  prune.flag("-n,--dry-run", options.dry_run, "Only count");
  prune.example("ff checkpoint prune --store /data/ckpt", "after forget");
  prune.blocking();
  prune.run([&common, &options](Session& s) { return run_prune(s, common, options); });
}

}  // namespace ff::cmd

// `ff checkpoint verify`, `repair`, `forget` and `prune`: checks checkpoints, repairs damaged ones,
// and removes old ones.
#include "cmd/checkpoint/checkpoint.h"
#include "cmd/cli/build_info.h"
#include "cmd/cli/confirm.h"
#include "platform/base/units.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/retention/forget.h"
#include "training/checkpoint/retention/prune.h"
#include "training/checkpoint/retention/repair.h"

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

// "1 chunk", "1,200 chunks".
std::string count_words(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

Json damage_json(const std::vector<checkpoint::DamageEntry>& damage) {
  Json list = Json::array();
  for (const auto& found : damage) {
    list.push_back({{"where", found.where}, {"reason", found.reason}, {"holds", found.holds}});
  }
  return list;
}

void print_damage(Output& out, const std::vector<checkpoint::DamageEntry>& damage) {
  for (const auto& found : damage) {
    out.line(Color::red, "{}: {}{}{}", found.where, found.reason,
             found.holds.empty() ? "" : "; it has ", found.holds);
  }
}

Json verify_json(const checkpoint::VerifyReport& report) {
  return {{"intact", names_json(report.intact)},
          {"damaged", names_json(report.damaged)},
          {"damage", damage_json(report.damage)},
          {"set_aside", report.set_aside},
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
  print_damage(session.out, report.damage);
  const auto device = load_device_speed(run.context().clock, store);
  session.out.note("read {} of {} chunks, {}", format_count(report.chunks),
                   format_count(report.chunks_total),
                   format_speed(report.bytes, report.elapsed_ns,
                                device ? std::optional(device->read) : std::nullopt));
  if (report.damage.empty()) return {};
  if (report.set_aside > 0) {
    session.out.note("moved {} aside: the next save of that data writes it again",
                     count_words(report.set_aside, "damaged chunk"));
  }
  return Error{Errc::corrupt,
               fmt::format("{}: {}", store, count_words(report.damage.size(), "damaged place")),
               "'ff checkpoint repair' takes chunks from another store or from the files; 'ff "
               "checkpoint salvage' restores what is intact."};
}

Result<void> run_repair(Session& session, const CheckpointOptions& common,
                        checkpoint::RepairOptions& options) {
  for (const auto& source : options.sources) {
    if (!client::is_url(source)) continue;
    return Error{Errc::usage, fmt::format("{}: a source is a directory or file", source),
                 "Mount the cluster with 'ff mount', and name the store's directory."};
  }
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  options.ff_version = kBuildInfo.version;
  auto bar = run.bar("repair");
  FF_TRY(const auto report, checkpoint::repair(run.context(), store, options));
  bar.reset();
  session.out.data({{"run", report.name.run},
                    {"step", report.name.step},
                    {"damaged", report.damaged},
                    {"repaired", report.repaired},
                    {"left", damage_json(report.left)},
                    {"seconds", to_seconds(report.elapsed_ns)}});
  if (report.damaged == 0) {
    session.out.line("{}: intact, nothing to repair", report.name.text());
    return {};
  }
  session.out.line("{}: repaired {} of {}", report.name.text(), report.repaired,
                   count_words(report.damaged, "damaged chunk"));
  print_damage(session.out, report.left);
  if (report.left.empty()) return {};
  return Error{Errc::corrupt,
               fmt::format("{}: the sources lack {}", report.name.text(),
                           count_words(report.left.size(), "chunk")),
               "Name more sources; 'ff checkpoint salvage' restores what is intact."};
}

struct ForgetArguments {
  checkpoint::ForgetOptions options;
  bool dry_run = false;
  bool yes = false;
};

void report_forget(Session& session, const checkpoint::ForgetReport& report) {
  Json kept = Json::array();
  Json blocked = Json::array();
  {
    auto table = session.out.table({{"STEP"}, {"ACTION"}, {"WHY"}});
    for (const auto& step : report.kept) {
      kept.push_back({{"name", step.name.text()}, {"reasons", step.reasons}});
      table.row({step.name.text(), "keep", fmt::format("{}", fmt::join(step.reasons, ", "))});
    }
    for (const auto& name : report.forgotten) {
      table.row({name.text(), {report.applied ? "removed" : "remove", Color::yellow}, ""});
    }
    for (const auto& run : report.blocked) {
      blocked.push_back(run.run);
      table.row({run.run, {"keep", Color::red}, "no checkpoint of this run is intact"});
    }
  }
  session.out.data({{"applied", report.applied},
                    {"kept", std::move(kept)},
                    {"forgotten", names_json(report.forgotten)},
                    {"blocked", std::move(blocked)}});
}

// The error of runs that could not lose anything; after the others have been handled.
Result<void> check_blocked(const checkpoint::ForgetReport& report) {
  if (report.blocked.empty()) return {};
  const auto& [run, checkpoints] = report.blocked.front();
  const std::string more = report.blocked.size() == 1
                               ? ""
                               : fmt::format(" (and {} more runs)", report.blocked.size() - 1);
  return Error{Errc::incomplete,
               fmt::format("run '{}'{}: nothing is removed, as {} of it is intact", run, more,
                           checkpoints == 1 ? std::string("no checkpoint")
                                            : fmt::format("none of {} checkpoints", checkpoints)),
               fmt::format("Repair one ('ff checkpoint repair'), save a new one, or remove the "
                           "whole run: 'ff checkpoint forget --run {} --all'.",
                           run)};
}

std::string removal_question(const checkpoint::ForgetOptions& options, size_t count) {
  if (options.whole_runs) {
    return fmt::format("Type yes to remove run {} with all of its data ({}):",
                       fmt::join(options.runs, ", "), count_words(count, "checkpoint"));
  }
  return fmt::format("Type yes to remove {}:", count == 1
                                                   ? std::string("this checkpoint")
                                                   : fmt::format("these {} checkpoints", count));
}

void note_removed(Session& session, size_t count) {
  session.out.note("removed {}; 'ff checkpoint prune' frees the space",
                   count_words(count, "checkpoint"));
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
  FF_TRY(const auto report, checkpoint::forget(run.context(), store, options));
  bar.reset();
  report_forget(session, report);
  const size_t count = report.forgotten.size();
  if (arguments.dry_run) {
    session.out.note("dry run: {} would be removed; --yes removes {}",
                     count_words(count, "checkpoint"), count == 1 ? "it" : "them");
  }
  if (report.applied && count > 0) note_removed(session, count);
  if (report.applied || count == 0 || arguments.dry_run) return check_blocked(report);
  FF_TRY(confirm(session, false, removal_question(options, count), "yes", NonInteractive::refuse));
  // Remove exactly what was printed: steps saved meanwhile do not change it.
  checkpoint::ForgetOptions confirmed;
  confirmed.apply = true;
  confirmed.ff_version = options.ff_version;
  if (options.whole_runs) {
    confirmed.whole_runs = true;
    confirmed.runs = options.runs;
  } else {
    for (const auto& name : report.forgotten) confirmed.steps.push_back(name.text());
  }
  bar = run.bar("forget");
  FF_TRY(const auto removed, checkpoint::forget(run.context(), store, confirmed));
  bar.reset();
  note_removed(session, removed.forgotten.size());
  return check_blocked(report);
}

Json leases_json(const std::vector<checkpoint::LeaseInfo>& leases) {
  Json list = Json::array();
  for (const auto& lease : leases) {
    list.push_back({{"action", lease.action}, {"run", lease.run}, {"step", lease.step}});
  }
  return list;
}

void print_prune(Output& out, const checkpoint::PruneReport& report, bool dry_run) {
  out.line("{} {}, {}", dry_run ? "dry run: prune would delete" : "deleted",
           count_words(report.chunks_deleted, "chunk"), format_size(report.bytes_deleted));
  for (const auto& [lease, corrected] : report.ahead) {
    const std::string next =
        corrected ? fmt::format("ff has set it to now, and removes it after {} without renewal",
                                format_duration(checkpoint::kLeaseTimeoutNs))
                  : fmt::format(
                        "chunks stay in the trash until a prune may set it to now (file "
                        "tmp/{}.lease of the store)",
                        lease.id);
    out.warn("the lease of the {} of {}@{} has a time {} in the future of the store's clock; {}",
             lease.action, lease.run, lease.step, format_duration(lease.ahead_ns), next);
  }
  for (const auto& attempt : report.abandoned) {
    out.line("{}: {} the shards of attempt '{}': {} of {} ranks had saved", attempt.name.text(),
             dry_run ? "would remove" : "removed", attempt.attempt, attempt.present.size(),
             attempt.world);
  }
  for (const auto& lease : report.overdue) {
    out.line("removed the lease of the {} of {}@{}, which its owner has not renewed for {}",
             lease.action, lease.run, lease.step, format_duration(checkpoint::kLeaseTimeoutNs));
  }
  if (report.chunks_deferred > 0) {
    out.line("{}, {}, stay in the trash until {} ended (--wait waits for that)",
             count_words(report.chunks_deferred, "chunk"), format_size(report.bytes_deferred),
             report.running.size() == 1
                 ? fmt::format("the running {} of {}@{} has", report.running[0].action,
                               report.running[0].run, report.running[0].step)
                 : fmt::format("{} running saves and loads have", report.running.size()));
  }
  if (report.chunks_recent > 0) {
    out.line("kept {}, {}: younger than --grace", count_words(report.chunks_recent, "unused chunk"),
             format_size(report.bytes_recent));
  }
}

Result<void> run_prune(Session& session, const CheckpointOptions& common,
                       const checkpoint::PruneOptions& options) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  FF_TRY(const auto report, checkpoint::prune(run.context(), store, options));
  Json future = Json::array();
  for (const auto& [lease, corrected] : report.ahead) {
    future.push_back({{"action", lease.action},
                      {"run", lease.run},
                      {"step", lease.step},
                      {"seconds", to_seconds(lease.ahead_ns)},
                      {"corrected", corrected}});
  }
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
                    {"future", std::move(future)},
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
      "exits with 3. It marks an intact checkpoint as verified and a damaged one as damaged, and "
      "moves damaged chunks aside, so that the next save of their data writes them again. --all "
      "checks every checkpoint and the store's own files.");
  verify.argument("NAME", text(arguments.options.names, "NAME"), "RUN[@STEP]").optional();
  verify.flag("--all", arguments.options.all, "Check every checkpoint in the store");
  verify.option("--sample", text(arguments.sample, "SHARE"),
                "Read only a random share of the chunks, such as 5%; marks nothing as verified");
  verify.example("ff checkpoint verify --store /data/ckpt --all", "weekly, from cron");
  verify.blocking();
  verify.run([&common, &arguments](Session& s) { return run_verify(s, common, arguments); });
}

void declare_checkpoint_repair(Command& checkpoint, CheckpointOptions& common) {
  auto& repair = checkpoint.sub("repair", "Replace damaged chunks from another store or the files");
  auto& options = repair.keep<checkpoint::RepairOptions>();
  repair.about(
      "Verifies a checkpoint, and stores its damaged or missing chunks again from each SOURCE: the "
      "directory of another store, or the files or directories that were saved, also from before "
      "or after that step. The name of a chunk is the digest of its data, so other data changes "
      "nothing. If chunks are still damaged, the command lists them and exits with 3.");
  repair.argument("NAME", text(options.name, "NAME"), "RUN[@STEP]");
  repair
      .argument("SOURCE", file(options.sources, "SOURCE"),
                "Directory of another store, or saved files or directories")
      .required();
  repair.example("ff checkpoint repair --store /data/ckpt llama@1000 /backup/ckpt",
                 "from a copy of the store");
  repair.example("ff checkpoint repair --store /data/ckpt llama@1000 model.safetensors",
                 "from the file that was saved");
  repair.blocking();
  repair.run([&common, &options](Session& s) { return run_repair(s, common, options); });
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
      "rules. 'ff checkpoint prune' then frees the space.\n\nA run without an intact checkpoint "
      "loses nothing, and the exit code is 4; other runs are not affected. --run RUN --all removes "
      "a run with all of its checkpoints, whatever their state.");
  forget.argument("NAME", text(options.steps, "NAME"), "RUN@STEP to remove").optional();
  forget.option("--run", text(options.runs, "RUN"), "Apply the rules, or --all, only to these runs")
      .default_value("all");
  forget.flag("--all", options.whole_runs,
              "Remove all checkpoints of the runs of --run, verified ones too");
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
  forget.example("ff checkpoint forget --store /data/ckpt --run llama --all", "remove a whole run");
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

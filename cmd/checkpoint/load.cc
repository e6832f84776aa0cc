// `ff checkpoint load`, `export` and `salvage`: restore files from a store.
#include <algorithm>

#include "cmd/checkpoint/checkpoint.h"
#include "platform/base/units.h"
#include "training/checkpoint/load/export.h"
#include "training/checkpoint/load/load.h"
#include "training/checkpoint/load/salvage.h"

namespace ff::cmd {
namespace {

constexpr size_t kLostPrinted = 20;  // lines of losses on a terminal; --json has more

struct LoadArguments {
  checkpoint::LoadOptions options;
  std::optional<std::string> slice;
};

Result<void> run_load(Session& session, const CheckpointOptions& common, LoadArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  if (arguments.slice) {
    FF_TRY(arguments.options.slice, checkpoint::parse_slice(*arguments.slice));
  }
  auto bar = run.bar("load");
  FF_TRY(const auto report, checkpoint::load(run.context(), store, arguments.options));
  bar.reset();
  session.out.data({{"run", report.name.run},
                    {"step", report.name.step},
                    {"dest", arguments.options.dest},
                    {"files", report.files},
                    {"tensors", report.tensors},
                    {"bytes", report.bytes},
                    {"seconds", to_seconds(report.elapsed_ns)}});
  for (const auto& warning : report.warnings) session.out.warn("{}", warning);
  session.out.line("{}", report.name.text());
  const auto device = load_device_speed(run.context().clock, store);
  session.out.note("loaded {}", format_speed(report.bytes, report.elapsed_ns,
                                             device ? std::optional(device->read) : std::nullopt));
  return {};
}

Result<void> run_export(Session& session, const CheckpointOptions& common,
                        const checkpoint::ExportOptions& options) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  auto bar = run.bar("export");
  FF_TRY(const auto report, checkpoint::export_safetensors(run.context(), store, options));
  bar.reset();
  session.out.data({{"run", report.name.run},
                    {"step", report.name.step},
                    {"out", options.out},
                    {"tensors", report.tensors},
                    {"bytes", report.bytes},
                    {"opaque_files", report.opaque_files},
                    {"seconds", to_seconds(report.elapsed_ns)}});
  if (report.opaque_files > 0) {
    session.out.warn("{} files that are not safetensors are not in {}", report.opaque_files,
                     options.out);
  }
  session.out.line("{}", options.out);
  session.out.note("exported {} tensors, {}", format_count(report.tensors),
                   format_speed(report.bytes, report.elapsed_ns, std::nullopt));
  return {};
}

Json lost_json(const checkpoint::SalvageReport& report) {
  Json list = Json::array();
  for (const auto& lost : report.lost) {
    list.push_back({{"file", lost.file}, {"tensor", lost.tensor}, {"reason", lost.reason}});
  }
  return list;
}

Result<void> run_salvage(Session& session, const CheckpointOptions& common,
                         const checkpoint::SalvageOptions& options) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  auto bar = run.bar("salvage");
  FF_TRY(const auto report, checkpoint::salvage(run.context(), store, options));
  bar.reset();
  session.out.data({{"run", report.name.run},
                    {"step", report.name.step},
                    {"dest", options.dest},
                    {"files_whole", report.files_whole},
                    {"files_partial", report.files_partial},
                    {"tensors", report.tensors},
                    {"bytes", report.bytes},
                    {"store_file_damaged", report.store_file_damaged},
                    {"lost_count", report.lost_count},
                    {"lost", lost_json(report)},
                    {"seconds", to_seconds(report.elapsed_ns)}});
  if (report.store_file_damaged) {
    session.out.warn("{}/ff-store.json is damaged or missing; only salvage works without it",
                     store);
  }
  session.out.line("restored {} whole files, {} partial ones, {} tensors, {}", report.files_whole,
                   report.files_partial, format_count(report.tensors), format_size(report.bytes));
  const size_t shown = std::min(report.lost.size(), kLostPrinted);
  for (size_t i = 0; i < shown; i++) {
    const auto& lost = report.lost[i];
    session.out.line(Color::red, "lost {} {}: {}", lost.tensor.empty() ? "file" : "tensor",
                     lost.tensor.empty() ? lost.file : lost.tensor, lost.reason);
  }
  if (report.lost_count == 0) return {};
  if (report.lost_count > shown) {
    session.out.line("... and {} more", format_count(report.lost_count - shown));
  }
  return fail(Errc::corrupt, "{}: {} tensors or files are lost", report.name.text(),
              format_count(report.lost_count));
}

}  // namespace

void declare_checkpoint_load(Command& checkpoint, CheckpointOptions& common) {
  auto& load = checkpoint.sub("load", "Restore the files of a checkpoint");
  auto& arguments = load.keep<LoadArguments>();
  checkpoint::LoadOptions& options = arguments.options;
  load.about(
      "Writes the files of a checkpoint below DEST, byte for byte as they were saved, and checks "
      "every chunk. DEST must be absent or an empty directory; the files appear only when all are "
      "complete. If several ranks saved files with the same name, each rank gets a directory "
      "rank-RRRRR. ff writes nothing outside DEST, whatever the store contains, and does not "
      "restore set-user-ID and set-group-ID.\n\nWith --tensor ff writes only tensors with matching "
      "names, to new safetensors "
      "files; --slice writes only a part of each. --reshard N joins tensors that were saved with "
      "--split, and splits them for N ranks, as rank-RRRRR-of-NNNNN.safetensors.");
  load.argument("NAME", text(options.name, "NAME"), "RUN[@STEP]");
  load.argument("DEST", dir(options.dest, "DEST"), "Directory for the files");
  load.option("--tensor", text(options.tensors, "GLOB"), "Load only tensors whose names match");
  load.option("--slice", text(arguments.slice, "B:E,..."),
              "Load only this part of each tensor: BEGIN:END for each dimension, such as 0:1024,:");
  load.option("--rank", number(options.rank, "R"), "Use only what this rank saved");
  load.option("--reshard", number(options.reshard, "N"), "Split tensors for N ranks");
  load.example("ff checkpoint load --store /data/ckpt llama@1000 restored", "load one step");
  load.example("ff checkpoint load --store /data/ckpt llama out --tensor '*.embed_tokens.*'",
               "load some tensors of the latest step");
  load.blocking();
  load.run([&common, &arguments](Session& s) { return run_load(s, common, arguments); });
}

void declare_checkpoint_export(Command& checkpoint, CheckpointOptions& common) {
  auto& command = checkpoint.sub("export", "Write a checkpoint's tensors as one safetensors file");
  auto& options = command.keep<checkpoint::ExportOptions>();
  command.about(
      "Writes the tensors of all safetensors files and ranks of a checkpoint to the file OUT, with "
      "a canonical header. ff joins tensors that were saved with --split or by ff.torch.dcp, and "
      "leaves out objects that are no tensors. A checkpoint of one canonical file results in an "
      "identical file.");
  command.argument("NAME", text(options.name, "NAME"), "RUN[@STEP]");
  command.argument("OUT", file(options.out, "OUT"), "File to write");
  command.option("--file", text(options.files, "GLOB"), "Export only tensors of matching files");
  command.option("--tensor", text(options.tensors, "GLOB"),
                 "Export only tensors whose names match");
  command.option("--rank", number(options.rank, "R"), "Use only what this rank saved");
  command.flag("--force", options.force, "Replace OUT if it exists");
  command.example("ff checkpoint export --store /data/ckpt llama@1000 llama.safetensors",
                  "one file for inference");
  command.blocking();
  command.run([&common, &options](Session& s) { return run_export(s, common, options); });
}

void declare_checkpoint_salvage(Command& checkpoint, CheckpointOptions& common) {
  auto& command = checkpoint.sub("salvage", "Restore the intact part of a damaged checkpoint");
  auto& options = command.keep<checkpoint::SalvageOptions>();
  command.about(
      "Checks every chunk of a checkpoint, and writes what is intact below DEST: undamaged files "
      "completely, and for a damaged safetensors file a new file with its intact tensors. Lists "
      "the lost tensors and files; if there are any, the exit code is 3.");
  command.argument("NAME", text(options.name, "NAME"), "RUN[@STEP]");
  command.argument("DEST", dir(options.dest, "DEST"), "Directory for the files");
  command.example("ff checkpoint salvage --store /data/ckpt llama@1000 rescued",
                  "after verify has reported damage");
  command.blocking();
  command.run([&common, &options](Session& s) { return run_salvage(s, common, options); });
}

}  // namespace ff::cmd

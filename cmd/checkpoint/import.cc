// `ff checkpoint import`: checkpoints of PyTorch into a store.
#include <algorithm>

#include "cmd/checkpoint/checkpoint.h"
#include "platform/base/units.h"
#include "training/checkpoint/import/import.h"

namespace ff::cmd {
namespace {

constexpr size_t kLeftOutPrinted = 10;  // paths on a terminal; --json has more

struct ImportArguments {
  checkpoint::ImportOptions options;
  std::optional<std::string> digest;
};

Result<void> run_import(Session& session, const CheckpointOptions& common,
                        ImportArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  checkpoint::ImportOptions& options = arguments.options;
  options.save.identity = identity(run.context().disk);
  if (arguments.digest) {
    FF_TRY(options.save.digest, simd::parse_digest_kind(*arguments.digest));
  } else if (run.in_cluster()) {
    options.save.digest = simd::DigestKind::sha256;
  }
  auto bar = run.bar("import");
  FF_TRY(const auto report, checkpoint::import_torch(run.context(), store, options));
  bar.reset();
  Json data = save_report_json(report.save);
  data["kind"] = report.is_folder ? "dcp" : "torch";
  data["tensors"] = report.tensors;
  data["values"] = report.values;
  data["left_out_count"] = report.left_out;
  data["left_out"] = report.left_out_paths;
  session.out.data(data);
  print_report(session.out, report.save, 0, load_device_speed(run.context().clock, store));
  session.out.note("imported {} {} and {} {}", format_count(report.tensors),
                   report.is_folder ? "chunks of tensors" : "tensors", format_count(report.values),
                   report.is_folder ? "objects" : "other values");
  if (report.left_out == 0) return {};
  const size_t shown = std::min(report.left_out_paths.size(), kLeftOutPrinted);
  for (size_t i = 0; i < shown; i++) session.out.warn("left out: {}", report.left_out_paths[i]);
  if (report.left_out > shown) {
    session.out.warn("left out: {} more", format_count(report.left_out - shown));
  }
  return {};
}

}  // namespace

void declare_checkpoint_import(Command& checkpoint, CheckpointOptions& common) {
  auto& command = checkpoint.sub("import", "Save a checkpoint that PyTorch has written");
  auto& arguments = command.keep<ImportArguments>();
  checkpoint::ImportOptions& options = arguments.options;
  command.about(
      "Saves what PyTorch has written as a checkpoint, tensor by tensor, and prints its name. PATH "
      "is a file of torch.save() (.pt, .pth, .bin; of PyTorch 1.6 or later), or a folder of "
      "torch.distributed.checkpoint (DCP, with the file .metadata).\n\nff runs nothing that such "
      "files say: it reads their pickles as data, with tensors, numbers, texts, bytes and Python's "
      "own containers of them. A pickle that needs any other class or function is refused (exit "
      "5), or with --skip-unknown such values are left out and counted. ff compares all bytes with "
      "the CRC-32 in the file.\n\nA file becomes one safetensors file, state.safetensors, with "
      "each tensor under the name of its path, such as model.layers.0.weight. Numbers, texts and "
      "containers are kept as JSON in its metadata (ff.state), so that ff.load() in Python gives "
      "the whole value back. Tensors that are views of the same memory are stored by value, each "
      "for itself.\n\nA folder becomes a checkpoint as ff.torch.dcp saves it: "
      "ff.torch.dcp.StorageReader loads it on any number of ranks, and 'ff checkpoint export' "
      "joins its chunks. Objects in it stay pickles, which PyTorch runs when it loads them; ff "
      "imports only those of the kinds above.");
  command.argument("PATH", file(options.path, "PATH"), "File or folder to import").required();
  command.option("--run", text(options.save.run, "RUN"), "The run that the checkpoint belongs to")
      .config("checkpoint.run")
      .env("FF_RUN");
  command.option("--step", number(options.save.step, "N"),
                 "Step number; without it the highest step of the run plus one");
  command.flag("--skip-unknown", options.skip_unknown,
               "Leave out values of classes that ff does not know");
  command.flag("--skip-crc", options.skip_crc,
               "Do not compare tensors with the CRC-32 in the file");
  command.flag("--replace", options.save.replace,
               "Replace the step if it exists with other content");
  command
      .flag("--compress", options.save.compress,
            "Compress chunks with zstd if that makes them a tenth smaller")
      .config("checkpoint.compress")
      .env("FF_COMPRESS");
  command.option("--digest", choice(arguments.digest, {"xxh128", "sha256"}),
                 "Digest of a new store: xxh128, or sha256 for stores that several users write");
  command.example("ff checkpoint import --store /data/ckpt --run llama --step 1000 model.pt",
                  "a file of torch.save()");
  command.example("ff checkpoint import --store /data/ckpt --run llama --step 1000 dcp/step-1000",
                  "a folder of torch.distributed.checkpoint");
  command.blocking();
  command.run([&common, &arguments](Session& s) { return run_import(s, common, arguments); });
}

}  // namespace ff::cmd

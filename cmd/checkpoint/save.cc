// `ff checkpoint save` and `watch`: their options and reports.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <string>

#include "cmd/checkpoint/checkpoint.h"
#include "platform/base/clock.h"
#include "platform/base/units.h"
#include "platform/io/dir_events.h"
#include "platform/io/files.h"
#include "training/checkpoint/save/saver_identity.h"
#include "training/checkpoint/save/watch.h"
#include "training/task/task_client.h"

namespace ff::cmd {
namespace {

constexpr int kPollMs = 200;  // wait for standard input, then check for Ctrl-C

struct SaveArguments {
  checkpoint::SaveOptions options;
  std::vector<std::string> paths;
  std::optional<std::string> digest;
  std::string stream_name = "stdin";
  std::vector<std::string> splits;
  std::optional<uint32_t> rank;
  std::optional<uint32_t> world;
};

// "GLOB" or "GLOB=DIM".
Result<checkpoint::SplitRule> parse_split(std::string_view text) {
  checkpoint::SplitRule rule{.pattern = std::string(text), .dimension = 0};
  const size_t equals = text.rfind('=');
  if (equals == text.npos) return rule;
  const std::string_view number = text.substr(equals + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), rule.dimension);
  if (error != std::errc() || end != number.data() + number.size()) {
    return Error{Errc::usage, fmt::format("--split {}: '{}' is not a dimension", text, number),
                 "Write GLOB=DIM, as in '*.weight=0'."};
  }
  rule.pattern.resize(equals);
  return rule;
}

// RANK and WORLD_SIZE of torchrun and of a task's ranks are the defaults of --rank and --world.
Result<void> fill_ranks(SaveArguments& arguments) {
  checkpoint::SaveOptions& options = arguments.options;
  options.rank = arguments.rank.value_or(0);
  options.world = arguments.world.value_or(1);
  const bool alone = arguments.world == 1U;  // whatever rank this is: it saves by itself
  if (!alone && !(arguments.rank && arguments.world)) {
    FF_TRY(const auto found, checkpoint::rank_from_environment());
    if (found) {
      options.rank = arguments.rank.value_or(found->rank);
      options.world = arguments.world.value_or(found->world);
    }
  }
  if (options.world > 1 && options.attempt.empty()) {
    options.attempt = checkpoint::attempt_from_environment();
  }
  return {};
}

// Standard input as a stream that does not block, so that Ctrl-C is noticed.
Result<std::optional<size_t>> read_stdin(ByteSpan into) {
  pollfd wait{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&wait, 1, kPollMs);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return std::optional<size_t>();
  const ssize_t got = ::read(STDIN_FILENO, into.data(), into.size());
  if (got < 0 && errno == EINTR) return std::optional<size_t>();
  if (got < 0) return errno_error(errno, "standard input");
  return std::optional(static_cast<size_t>(got));
}

// Resolve "." and ".." to get a name.
Result<std::string> nameable(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  const std::string name = io::base_name(trimmed);
  if (name != "." && name != "..") return path;
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return errno_error(errno, path);
  return std::string(resolved);
}

Result<checkpoint::SaveInputs> save_inputs(const SaveArguments& arguments) {
  checkpoint::SaveInputs inputs;
  for (const auto& path : arguments.paths) {
    if (path != "-") {
      FF_TRY(inputs.paths.emplace_back(), nameable(path));
      continue;
    }
    if (inputs.stream) return fail(Errc::usage, "'-' is given twice");
    if (!checkpoint::safe_name(arguments.stream_name)) {
      return fail(Errc::usage, "--name {}: not a relative file name", arguments.stream_name);
    }
    inputs.stream = checkpoint::StreamInput{.name = arguments.stream_name, .read = read_stdin};
  }
  return inputs;
}

std::string_view outcome_name(checkpoint::SaveOutcome outcome) {
  switch (outcome) {
    case checkpoint::SaveOutcome::committed: return "committed";
    case checkpoint::SaveOutcome::already_there: return "already_there";
    case checkpoint::SaveOutcome::waiting: return "waiting";
  }
  return "";
}

Result<void> fill_options(SaveArguments& arguments, CheckpointSession& run) {
  checkpoint::SaveOptions& options = arguments.options;
  options.identity = identity(run.context().disk);
  if (arguments.digest) {
    FF_TRY(options.digest, simd::parse_digest_kind(*arguments.digest));
  } else if (run.in_cluster()) {
    options.digest = simd::DigestKind::sha256;
  }
  options.splits.clear();
  for (const auto& split : arguments.splits) {
    FF_TRY(auto rule, parse_split(split));
    options.splits.push_back(std::move(rule));
  }
  return {};
}

// An error of the report to the agent of the task does not fail the save.
void tell_agent(Session& session, Rng& rng, const checkpoint::SaveReport& report) {
  auto dir = task::task_dir_from_environment();
  if (!dir || report.outcome == checkpoint::SaveOutcome::waiting) return;
  io::SystemDisk disk;  // the local disk, wherever the store is
  const auto reported = task::TaskClient(disk, rng, std::move(*dir)).saved(report.name.step);
  if (reported) return;
  session.out.warn("{} is saved, but ff could not tell the agent of the task: {}. {}",
                   report.name.text(), reported.error().message, reported.error().hint);
}

Result<void> run_save(Session& session, const CheckpointOptions& common, SaveArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  FF_TRY(fill_ranks(arguments));
  FF_TRY(fill_options(arguments, run));
  FF_TRY(const auto inputs, save_inputs(arguments));
  auto bar = run.bar("save");
  FF_TRY(const auto report, checkpoint::save(run.context(), store, inputs, arguments.options));
  bar.reset();
  session.out.data(save_report_json(report));
  tell_agent(session, run.context().rng, report);
  print_report(session.out, report, arguments.options.rank,
               load_device_speed(run.context().clock, store));
  return {};
}

void declare_common(Command& command, SaveArguments& arguments) {
  checkpoint::SaveOptions& options = arguments.options;
  command.option("--run", text(options.run, "RUN"), "The run that the checkpoint belongs to")
      .config("checkpoint.run")
      .env("FF_RUN")
      .section(kCommonOptions);
  command
      .flag("--compress", options.compress,
            "Compress chunks with zstd if that makes them a tenth smaller")
      .config("checkpoint.compress")
      .env("FF_COMPRESS")
      .section(kCommonOptions);
  command
      .option("--opaque", text(options.opaque, "GLOB"),
              "Do not look for tensors in files with these names")
      .section(kCommonOptions);
  command
      .option("--digest", choice(arguments.digest, {"xxh128", "sha256"}),
              "Digest that names chunks, in a store that this save creates: xxh128 is faster and "
              "for stores of one user; sha256 is for stores that several users write, and the "
              "default in a cluster and in a directory that others can write")
      .section(kCommonOptions);
}

struct WatchArguments {
  SaveArguments save;
  checkpoint::WatchOptions options;
};

Result<void> run_watch(Session& session, const CheckpointOptions& common,
                       WatchArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  FF_TRY(fill_options(arguments.save, run));
  arguments.options.save = arguments.save.options;
  FF_TRY(auto events, io::DirEvents::open(arguments.options.dir));
  auto moved_in = [&] { return events.read_names(); };
  auto on_saved = [&](const std::string& path, const Result<checkpoint::SaveReport>& saved) {
    if (!saved) {
      session.out.warn("{}: {}", path, saved.error().message);
      return session.out.emit({{"path", path}, {"error", saved.error().message}});
    }
    print_report(session.out, *saved, 0, std::nullopt);
    Json data = save_report_json(*saved);
    data["path"] = path;
    return session.out.emit(data);
  };
  session.out.note("watching {}", arguments.options.dir);
  return checkpoint::watch(run.context(), store, arguments.options, moved_in, on_saved);
}

}  // namespace

Json save_report_json(const checkpoint::SaveReport& report) {
  return {{"run", report.name.run},
          {"step", report.name.step},
          {"outcome", outcome_name(report.outcome)},
          {"files", report.files},
          {"tensors", report.tensors},
          {"bytes", report.bytes},
          {"zero_bytes", report.zero_bytes},
          {"chunks_new", report.chunks_new},
          {"chunks_reused", report.chunks_reused},
          {"bytes_written", report.bytes_written},
          {"missing_ranks", report.missing_ranks},
          {"seconds", to_seconds(report.elapsed_ns)}};
}

void print_report(Output& out, const checkpoint::SaveReport& report, uint32_t rank,
                  const std::optional<DeviceSpeed>& device) {
  for (const auto& warning : report.warnings) out.warn("{}", warning);
  const auto rate = device ? std::optional(device->write) : std::nullopt;
  switch (report.outcome) {
    case checkpoint::SaveOutcome::already_there:
      out.line("{} exists already with the same content", report.name.text());
      return;
    case checkpoint::SaveOutcome::waiting:
      out.line("{}: rank {} is stored; waiting for {} more", report.name.text(), rank,
               report.missing_ranks);
      break;
    case checkpoint::SaveOutcome::committed: out.line("{}", report.name.text()); break;
  }
  out.note("saved {}", format_speed(report.bytes, report.elapsed_ns, rate));
  // The header of a chunk file makes this percentage useless for tiny inputs.
  const double share =
      static_cast<double>(report.bytes_written) / static_cast<double>(report.bytes);
  const std::string percent =
      report.bytes > 0 && share < 2 ? fmt::format(" ({:.1f}%)", 100 * share) : "";
  out.note("wrote {}{}: {} new chunks, {} reused", format_size(report.bytes_written), percent,
           format_count(report.chunks_new), format_count(report.chunks_reused));
}

void declare_checkpoint_save(Command& checkpoint, CheckpointOptions& common) {
  auto& save = checkpoint.sub("save", "Save files, directories or standard input");
  auto& arguments = save.keep<SaveArguments>();
  save.about(
      "Saves the PATHs as one checkpoint and prints its name. If the directory of the store is "
      "absent or empty, ff creates the store. ff reads *.safetensors files tensor by tensor and "
      "keeps all other files as they are, directories with modes and times.\n\nSeveral ranks save "
      "shards of one checkpoint with equal --run, --step, --world and --attempt; the last rank to "
      "finish commits it. If a rank never saves, the step stays incomplete, as 'ff checkpoint "
      "list' shows. Under torchrun and in a task of several ranks, each rank saves its shard; with "
      "--world 1 it saves a whole checkpoint by itself.\n\nIf the step exists, the command "
      "succeeds if the content is equal, and is "
      "refused (exit 5) otherwise.\n\nIf the scheduler has restarted a task, the earlier attempt "
      "can no longer save into a run that the later attempt uses: exit code 5.\n\nIn a task "
      "(FF_TASK_DIR is set), ff writes the step to the file 'saved' in that directory when the "
      "checkpoint is complete, so that the agent of the node knows it.");
  save.argument("PATH", file(arguments.paths, "PATH"),
                "Files or directories; '-' for standard input")
      .required();
  declare_common(save, arguments);
  checkpoint::SaveOptions& options = arguments.options;
  save.option("--step", number(options.step, "N"),
              "Step number; without it the highest step of the run plus one");
  save.option("--rank", number(arguments.rank, "R"),
              "Number of this rank, from 0; without it RANK, which torchrun and 'ff schedule' set");
  save.option("--world", number(arguments.world, "N"),
              "Number of ranks that save together; without it WORLD_SIZE, or 1. With 1, this rank "
              "saves a whole checkpoint by itself");
  save.option("--attempt", text(options.attempt, "ID"),
              "Id that all ranks share, new for each start of the job; without it the attempt of "
              "the task, and torchrun's --rdzv-id and restart count")
      .env("FF_ATTEMPT");
  save.option("--split", text(arguments.splits, "GLOB[=DIM]"),
              "Tensors that are split equally over the ranks along DIM (0)");
  save.flag("--replace", options.replace, "Replace the step if it exists with other content");
  save.option("--name", text(arguments.stream_name, "NAME"), "File name for standard input");
  save.example("ff checkpoint save --store /data/ckpt --run llama --step 1000 model.safetensors",
               "save one file");
  save.example("tar c state | ff checkpoint save --store /data/ckpt --name state.tar -",
               "save standard input");
  save.blocking();
  save.run([&common, &arguments](Session& s) { return run_save(s, common, arguments); });
}

void declare_checkpoint_watch(Command& checkpoint, CheckpointOptions& common) {
  auto& watch = checkpoint.sub("watch", "Save new files of a directory as checkpoints");
  auto& arguments = watch.keep<WatchArguments>();
  watch.about(
      "Watches DIR and saves each new file or directory in it as a checkpoint: at once if it was "
      "renamed into place, otherwise when nothing in it has changed for the --settle time and, for "
      ".safetensors files, its header is readable. The step is the number at the end of the name "
      "(model-1000.safetensors), or the highest step plus one. ff ignores names that begin with "
      "'.' "
      "or end in .tmp or .part, and files that the run already has with the same name, size and "
      "time. It runs until it is stopped.");
  watch.argument("DIR", dir(arguments.options.dir), "Directory to watch");
  declare_common(watch, arguments.save);
  watch.option("--settle", duration(arguments.options.settle_ns),
               "How long a file must stay unchanged before ff saves it");
  watch.flag("--once", arguments.options.once,
             "Save the existing files when they are settled, and exit");
  watch.example("ff checkpoint watch --store /data/ckpt --run llama /scratch/llama/out",
                "save what a training writes there");
  watch.blocking();
  watch.run([&common, &arguments](Session& s) { return run_watch(s, common, arguments); });
}

}  // namespace ff::cmd

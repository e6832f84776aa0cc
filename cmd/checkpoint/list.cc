// `ff checkpoint list`, `show`, `diff` and `latest`: reports on the content of a store.
#include "cmd/checkpoint/checkpoint.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "training/checkpoint/format/catalog.h"
#include "training/checkpoint/load/diff.h"

namespace ff::cmd {
namespace {

std::string missing_words(const checkpoint::SaveAttempt& attempt) {
  return fmt::format("{} of {} ranks missing: {}{}", attempt.missing_count, attempt.world,
                     fmt::join(attempt.missing, " "),
                     attempt.missing_count > attempt.missing.size() ? " ..." : "");
}

Json step_json(const checkpoint::StepInfo& info) {
  Json step = {{"run", info.name.run}, {"step", info.name.step}};
  step["state"] = !info.committed        ? "incomplete"
                  : !info.damage.empty() ? "damaged"
                  : info.verified        ? "verified"
                                         : "committed";
  if (info.summary) {
    const auto& [header, end] = *info.summary;
    step["created"] = format_time(header.created_ns);
    // A number of this size is not exact in jq and JavaScript.
    step["created_ns"] = std::to_string(header.created_ns);
    step["created_seconds"] = to_seconds(header.created_ns);
    step["world"] = header.world;
    step["files"] = end.files;
    step["tensors"] = end.tensors;
    step["bytes"] = end.size;
    step["user"] = header.user;
    step["host"] = header.host;
    step["ff"] = header.ff_version;
    step["content"] = end.content.hex();
  }
  if (info.verified) step["verified"] = format_time(info.verified->at_ns);
  if (!info.damage.empty()) step["damage"] = info.damage;
  Json attempts = Json::array();
  for (const auto& attempt : info.attempts) {
    attempts.push_back({{"attempt", attempt.id},
                        {"world", attempt.world},
                        {"present", attempt.present},
                        {"missing", attempt.missing},
                        {"missing_count", attempt.missing_count}});
  }
  if (!info.attempts.empty()) step["attempts"] = std::move(attempts);
  return step;
}

void step_rows(Table& table, const checkpoint::StepInfo& info) {
  const std::string step = std::to_string(info.name.step);
  if (!info.committed) {
    for (const auto& attempt : info.attempts) {
      table.row({info.name.run,
                 step,
                 {"incomplete", Color::yellow},
                 "",
                 "",
                 "",
                 "",
                 missing_words(attempt)});
    }
    if (info.attempts.empty()) {
      table.row({info.name.run, step, {"incomplete", Color::yellow}, "", "", "", "", "empty"});
    }
    return;
  }
  if (!info.summary) {
    table.row({info.name.run, step, {"damaged", Color::red}, "", "", "", "", info.damage});
    return;
  }
  const auto& [header, end] = *info.summary;
  const Cell state = !info.damage.empty() ? Cell("damaged", Color::red)
                     : info.verified      ? Cell("verified", Color::green)
                                          : Cell("committed");
  table.row({info.name.run, step, state, format_time(header.created_ns), format_count(end.files),
             format_count(end.tensors), format_size(end.size), header.user + "@" + header.host});
}

Result<void> run_checkpoint_ls(Session& session, const CheckpointOptions& common,
                               const std::string& run_name) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store_path, run.store());
  FF_TRY(const auto store, checkpoint::Store::open(run.context().disk, store_path));
  std::vector<std::string> runs = {run_name};
  if (run_name.empty()) {
    FF_TRY(runs, checkpoint::list_runs(run.context().disk, store));
  } else {
    FF_TRY(checkpoint::check_run_name(run_name));
  }
  Json steps_json = Json::array();
  uint64_t shown = 0;
  {
    auto table = session.out.table({{"RUN"},
                                    {"STEP", Align::right},
                                    {"STATE"},
                                    {"SAVED"},
                                    {"FILES", Align::right},
                                    {"TENSORS", Align::right},
                                    {"SIZE", Align::right},
                                    {"BY"}});
    for (const auto& name : runs) {
      FF_TRY(const auto steps, checkpoint::list_steps(run.context().disk, store, name));
      for (const uint64_t step : steps) {
        FF_TRY(session.stop.check());
        FF_TRY(const auto info, checkpoint::step_info(run.context().disk, store, {name, step}));
        step_rows(table, info);
        if (session.out.mode().json) steps_json.push_back(step_json(info));
        shown++;
      }
    }
  }
  session.out.data({{"store", store_path}, {"steps", std::move(steps_json)}});
  if (shown > 0) return {};
  if (!run_name.empty()) {
    return Error{Errc::not_found, fmt::format("{} has no run '{}'", store_path, run_name),
                 "'ff checkpoint list' without a run lists all."};
  }
  session.out.note("no checkpoints in {}", store_path);
  return {};
}

std::string shape_words(const std::vector<uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

std::string_view kind_words(checkpoint::EntryKind kind) {
  switch (kind) {
    case checkpoint::EntryKind::opaque: return "file";
    case checkpoint::EntryKind::safetensors: return "safetensors";
    case checkpoint::EntryKind::directory: return "directory";
    case checkpoint::EntryKind::symlink: return "symlink";
  }
  return "";
}

// Streams the entries of a checkpoint: a million tensors are too many for a document tree.
class ShowPrinter {
 public:
  ShowPrinter(Output& out, bool ranks)
      : out_(out),
        ranks_(ranks),
        table_(out.table({{"TYPE"}, {"SHAPE"}, {"SIZE", Align::right}, {"NAME"}})) {}

  void file(const checkpoint::FileRecord& file) {
    const std::string rank = ranks_ ? fmt::format(" (rank {})", file.rank) : "";
    table_.row({std::string(kind_words(file.kind)),
                "",
                format_size(file.size),
                {file.name + rank, Color::bold}});
    if (!out_.mode().json) return;
    add({{"file", file.name},
         {"rank", file.rank},
         {"kind", kind_words(file.kind)},
         {"bytes", file.size}});
  }
  void tensor(const checkpoint::TensorRecord& tensor) {
    std::string shape = shape_words(tensor.shape);
    if (!tensor.global_shape.empty()) {
      shape += fmt::format(" of {} at {}", shape_words(tensor.global_shape),
                           shape_words(tensor.slice_start));
    }
    table_.row({tensor.is_object ? "object" : tensor.dtype, shape, format_size(tensor.size),
                "  " + tensor.name});
    if (!out_.mode().json) return;
    Json entry = {{"tensor", tensor.name},
                  {"dtype", tensor.dtype},
                  {"shape", tensor.shape},
                  {"bytes", tensor.size}};
    if (!tensor.global_shape.empty()) {
      entry["global_shape"] = tensor.global_shape;
      entry["slice_start"] = tensor.slice_start;
      entry["slice_of"] = checkpoint::whole_name(tensor);
    }
    if (tensor.is_object) entry["object"] = true;
    add(entry);
  }
  std::string entries() && { return std::move(entries_); }

 private:
  void add(const Json& entry) {
    if (!entries_.empty()) entries_ += ',';
    entries_ += entry.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  Output& out_;
  bool ranks_;
  Table table_;
  std::string entries_;
};

struct ShowArguments {
  std::string name;
  std::vector<std::string> tensors;
};

bool matches(const std::vector<std::string>& globs, std::string_view name) {
  if (globs.empty()) return true;
  for (const auto& glob : globs) {
    if (glob_match(glob, name)) return true;
  }
  return false;
}

Result<void> run_checkpoint_show(Session& session, const CheckpointOptions& common,
                                 const ShowArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store_path, run.store());
  FF_TRY(const auto store, checkpoint::Store::open(run.context().disk, store_path));
  FF_TRY(const auto name, checkpoint::resolve_step(run.context().disk, store, arguments.name));
  FF_TRY(const auto info, checkpoint::step_info(run.context().disk, store, name));
  if (info.summary) {
    const auto& [header, end] = *info.summary;
    session.out.note("{}: {} files, {} tensors, {}; saved {} by {}@{}, ff {}", name.text(),
                     format_count(end.files), format_count(end.tensors), format_size(end.size),
                     format_time(header.created_ns), header.user, header.host, header.ff_version);
  }
  FF_TRY(auto reader, checkpoint::IndexReader::open(run.context().disk, store.index_path(name)));
  std::string entries;
  {
    ShowPrinter printer(session.out, reader.header().world > 1);
    for (;;) {
      FF_TRY(session.stop.check());
      FF_TRY(const auto record, reader.next());
      if (!record) break;
      if (const auto* file = std::get_if<checkpoint::FileRecord>(&*record)) {
        if (arguments.tensors.empty()) printer.file(*file);
      } else if (const auto* tensor = std::get_if<checkpoint::TensorRecord>(&*record)) {
        if (matches(arguments.tensors, tensor->name)) printer.tensor(*tensor);
      }
    }
    entries = std::move(printer).entries();
  }
  if (session.out.mode().json) {
    session.out.data_text(R"({"checkpoint":)" + step_json(info).dump() + R"(,"entries":[)" +
                          entries + "]}");
  }
  return {};
}

std::string_view state_words(checkpoint::DiffState state) {
  switch (state) {
    case checkpoint::DiffState::same: return "same";
    case checkpoint::DiffState::changed: return "changed";
    case checkpoint::DiffState::added: return "added";
    case checkpoint::DiffState::removed: return "removed";
  }
  return "";
}

struct DiffArguments {
  checkpoint::DiffOptions options;
  bool all = false;
};

Json count_json(const checkpoint::DiffCount& count) {
  return {{"same", count.same},
          {"changed", count.changed},
          {"added", count.added},
          {"removed", count.removed},
          {"differing_bytes", count.differing}};
}

Json diff_json(const checkpoint::DiffEntry& entry) {
  Json json = {{"file", entry.file},
               {"rank", entry.rank},
               {"tensor", entry.tensor ? Json(*entry.tensor) : Json()},
               {"state", state_words(entry.state)},
               {"differing_bytes", entry.differing}};
  if (entry.values) {
    json["elements"] = entry.values->elements;
    json["elements_changed"] = entry.values->changed;
    json["max_abs"] = entry.values->max_difference;
  }
  return json;
}

Result<void> run_diff(Session& session, const CheckpointOptions& common,
                      const DiffArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store, run.store());
  std::string entries;
  Result<checkpoint::DiffReport> report = Error{};
  {
    auto bar = run.bar("diff");
    auto table = session.out.table({{"STATE"},
                                    {"DIFFERING", Align::right},
                                    {"ELEMENTS", Align::right},
                                    {"MAX ABS", Align::right},
                                    {"NAME"}});
    report = checkpoint::diff(
        run.context(), store, arguments.options,
        [&](const checkpoint::DiffEntry& entry) -> Result<void> {
          if (entry.state == checkpoint::DiffState::same && !arguments.all) return {};
          const auto& values = entry.values;
          table.row({std::string(state_words(entry.state)), format_size(entry.differing),
                     values ? fmt::format("{} of {}", values->changed, values->elements) : "",
                     values ? fmt::format("{:.6g}", values->max_difference) : "",
                     entry.tensor ? *entry.tensor : entry.file});
          if (!session.out.mode().json) return {};
          if (!entries.empty()) entries += ',';
          entries += diff_json(entry).dump(-1, ' ', false, Json::error_handler_t::replace);
          return {};
        });
  }
  if (!report) return std::move(report).error();
  const auto& tensors = report->tensors;
  const auto& files = report->files;
  session.out.note(
      "{} and {}: {} tensors and {} files are equal; {} changed, {} added, {} removed ({})",
      report->a.text(), report->b.text(), format_count(tensors.same), format_count(files.same),
      format_count(tensors.changed + files.changed), format_count(tensors.added + files.added),
      format_count(tensors.removed + files.removed),
      format_size(tensors.differing + files.differing));
  if (session.out.mode().json) {
    session.out.data_text(fmt::format(
        R"({{"a":"{}","b":"{}","tensors":{},"files":{},"entries":[{}]}})", report->a.text(),
        report->b.text(), count_json(tensors).dump(), count_json(files).dump(), entries));
  }
  return {};
}

struct LatestArguments {
  std::string run = "default";
  bool path = false;
};

Result<void> run_latest(Session& session, const CheckpointOptions& common,
                        const LatestArguments& arguments) {
  CheckpointSession run(session, common);
  FF_TRY(const auto store_path, run.store());
  FF_TRY(checkpoint::check_run_name(arguments.run));
  FF_TRY(const auto store, checkpoint::Store::open(run.context().disk, store_path));
  FF_TRY(const auto name, checkpoint::latest_step(run.context().disk, store, arguments.run));
  session.out.data({{"run", name.run}, {"step", name.step}, {"path", store.step_dir(name)}});
  if (arguments.path) {
    session.out.line("{}", store.step_dir(name));
  } else {
    session.out.line("{}", name.step);
  }
  return {};
}

void declare_steps(Command& list, CheckpointOptions& common) {
  auto& run_name = list.keep<std::string>();
  list.about(
      "Lists every step of every run with its state: committed, verified or damaged (by the last "
      "'ff checkpoint verify'), or incomplete, with the missing ranks.");
  list.argument("RUN", text(run_name, "RUN"), "List only this run").optional();
  list.example("ff checkpoint list --store /data/ckpt", "everything in a store");
  list.run([&common, &run_name](Session& s) { return run_checkpoint_ls(s, common, run_name); });
}

}  // namespace

void declare_checkpoint_ls(Command& checkpoint, CheckpointOptions& common) {
  declare_steps(checkpoint.sub("list", "List runs and their steps"), common);
  declare_steps(checkpoint.sub("ls", "The old name of list").hidden(), common);
}

void declare_checkpoint_show(Command& checkpoint, CheckpointOptions& common) {
  auto& show = checkpoint.sub("show", "List the files and tensors of a checkpoint");
  auto& arguments = show.keep<ShowArguments>();
  show.about("Lists the files of a checkpoint and their tensors, with type, shape and size.");
  show.argument("NAME", text(arguments.name, "NAME"), "RUN[@STEP]");
  show.option("--tensor", text(arguments.tensors, "GLOB"), "Show only tensors whose names match");
  show.example("ff checkpoint show --store /data/ckpt llama@1000 --tensor '*.q_proj.*'",
               "show some tensors");
  show.run([&common, &arguments](Session& s) { return run_checkpoint_show(s, common, arguments); });
}

void declare_checkpoint_diff(Command& checkpoint, CheckpointOptions& common) {
  auto& diff = checkpoint.sub("diff", "Compare two checkpoints");
  auto& arguments = diff.keep<DiffArguments>();
  diff.about(
      "Lists the tensors and files that differ between A and B, with the size of the chunks that "
      "differ (an upper bound of the changed bytes). With --values ff reads changed tensors and "
      "compares them element by element.");
  diff.argument("A", text(arguments.options.a, "A"), "RUN[@STEP]");
  diff.argument("B", text(arguments.options.b, "B"), "RUN[@STEP]");
  diff.flag("--values", arguments.options.values,
            "Count changed elements, and show the largest change");
  diff.flag("--all", arguments.all, "Also list what is equal");
  diff.example("ff checkpoint diff --store /data/ckpt --values llama@1000 llama@2000",
               "how much training changed the weights");
  diff.blocking();
  diff.run([&common, &arguments](Session& s) { return run_diff(s, common, arguments); });
}

void declare_checkpoint_latest(Command& checkpoint, CheckpointOptions& common) {
  auto& latest = checkpoint.sub("latest", "Print the highest step");
  auto& arguments = latest.keep<LatestArguments>();
  latest.about(
      "Prints the highest readable step of RUN, for scripts. A lower step that is saved or "
      "replaced "
      "later does not change it.");
  latest.argument("RUN", text(arguments.run, "RUN"), "Run").optional();
  latest.flag("--path", arguments.path, "Print the path of the step in the store instead");
  latest.example("step=$(ff checkpoint latest --store /data/ckpt llama)",
                 "get the step to resume from");
  latest.run([&common, &arguments](Session& s) { return run_latest(s, common, arguments); });
}

}  // namespace ff::cmd

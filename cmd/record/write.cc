// `ff record pack` and `split`: write FFRecord files, from files and from other FFRecord files.
#include <algorithm>

#include "cmd/record/record.h"
#include "platform/base/units.h"

namespace ff::cmd {

namespace {

struct PackOptions {
  std::vector<std::string> paths;
  uint64_t part_bytes = kGiB;
  bool replace = false;
  bool resume = false;
};

struct SplitOptions {
  std::vector<std::string> paths;
  uint64_t into = 0;
  bool replace = false;
};

// The paths of `ff record pack FROM... TO`, which all become paths for the disk of the session.
struct FromTo {
  std::vector<std::string> from;
  std::string to;

  static Result<FromTo> of(const std::vector<std::string>& paths) {
    if (paths.size() < 2) {
      return Error{Errc::usage, "the command needs one FROM or more, and TO",
                   "The last path is where it writes."};
    }
    return FromTo{{paths.begin(), paths.end() - 1}, paths.back()};
  }
  std::vector<std::string*> all() {
    std::vector<std::string*> pointers;
    for (std::string& path : from) pointers.push_back(&path);
    pointers.push_back(&to);
    return pointers;
  }
};

// Writes the parts and reports them.
Result<void> write_and_report(Session& session, RecordSession& run, record::SampleSource& source,
                              const record::PartPlan& plan, const record::WriteOptions& options) {
  auto bar = run.bar("write");
  FF_TRY(const auto written, record::write_parts(run.work(), run.disk(), source, plan, options));
  bar.reset();
  uint64_t bytes = 0;
  Json files = Json::array();
  for (const record::Part& part : plan.parts) {
    bytes += part.bytes;
    files.push_back({{"path", part.path}, {"samples", part.samples}, {"bytes", part.bytes}});
    session.out.line("{}", part.path);
  }
  const double seconds = std::max(1e-9, to_seconds(run.elapsed_ns()));
  const std::string kept =
      written.kept == 0 ? "" : fmt::format(", {} of which it kept", format_count(written.kept));
  session.out.note("{} samples, {} in {} files{}, {}", format_count(source.samples()),
                   format_size(bytes), format_count(plan.parts.size()), kept,
                   format_rate(static_cast<double>(bytes) / seconds));
  session.out.data({{"samples", source.samples()},
                    {"bytes", bytes},
                    {"kept", written.kept},
                    {"seconds", seconds},
                    {"files", std::move(files)}});
  return {};
}

Result<void> run_pack(Session& session, const RecordOptions& common, const PackOptions& options) {
  FF_TRY(auto paths, FromTo::of(options.paths));
  FF_TRY(auto run, RecordSession::open(session, common, paths.all()));
  FF_TRY(auto source, record::FileSource::list(run->disk(), paths.from));
  const auto plan = record::plan_by_size(source, paths.to, options.part_bytes);
  return write_and_report(session, *run, source, plan,
                          {.replace = options.replace, .resume = options.resume});
}

Result<void> run_split(Session& session, const RecordOptions& common, const SplitOptions& options) {
  FF_TRY(auto paths, FromTo::of(options.paths));
  if (options.into == 0) return fail(Errc::usage, "--into: at least one file");
  FF_TRY(auto run, RecordSession::open(session, common, paths.all()));
  FF_TRY(auto reader, run->reader(paths.from, true));
  FF_TRY(auto source, record::RecordSource::of(*reader));
  const auto plan = record::plan_by_count(source, paths.to, options.into);
  return write_and_report(session, *run, source, plan, {.replace = options.replace});
}

}  // namespace

void declare_record_write(Command& record, RecordOptions& common) {
  Command& pack = record.sub("pack", "Write files as samples of FFRecord files");
  auto& options = pack.keep<PackOptions>();
  pack.about(
      "Makes a sample of each file FROM; of a directory, of each file below it, sorted by name at "
      "each level. It leaves out symbolic links and special files below a directory. The names of "
      "the files are not stored.\n\nTO is one file if its name ends with .ffr. Otherwise it is a "
      "directory, in which ff writes PART_00000.ffr, PART_00001.ffr and so on. Each file appears "
      "only when it is complete and on disk.\n\n--resume continues an interrupted run: ff keeps "
      "files that have the right samples by number and length and are newer than their sources, "
      "and writes the others again.");
  pack.argument("PATH", file(options.paths, "FROM... TO"), "Files and directories, and where to")
      .required();
  pack.option("--part-size", size(options.part_bytes),
              "Most bytes of samples in a file of a directory; a longer sample gets its own");
  pack.flag("-f,--force", options.replace, "Overwrite files that exist");
  pack.flag("--resume", options.resume, "Continue an interrupted run");
  pack.example("ff record pack images/ train/", "as files of about 1 GiB");
  pack.example("ff record pack a.bin b.bin ff:///data/ab.ffr", "two samples, into a cluster");
  pack.blocking();
  pack.run([&](Session& session) { return run_pack(session, common, options); });

  Command& split = record.sub("split", "Spread the samples of FFRecord files over N files");
  auto& split_options = split.keep<SplitOptions>();
  split.about(
      "Writes the samples of FROM, in their order, into N files PART_00000.ffr and so on in the "
      "directory TO. The numbers of samples of two files differ by at most one. ff checks the "
      "CRC-32 of each sample.");
  split
      .argument("PATH", file(split_options.paths, "FROM... TO"),
                "FFRecord files or directories of them, and the new directory")
      .required();
  split.option("--into", number(split_options.into, "N"), "Number of files").required();
  split.flag("-f,--force", split_options.replace, "Overwrite files that exist");
  split.example("ff record split all.ffr parts/ --into 64", "one file for each of 64 readers");
  split.blocking();
  split.run([&](Session& session) { return run_split(session, common, split_options); });
}

}  // namespace ff::cmd

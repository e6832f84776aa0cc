// `ff record pack` and `split`: write FFRecord files, from files, tar archives and other FFRecord
// files.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "cmd/record/record.h"
#include "platform/base/units.h"
#include "platform/io/files.h"

namespace ff::cmd {

namespace {

struct PackOptions {
  std::vector<std::string> paths;
  uint64_t part_bytes = kGiB;
  bool replace = false;
  bool resume = false;
  bool tar = false;
  bool names = false;
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

// Waits for data in steps, so that Ctrl-C is noticed. 0: the end.
Result<size_t> read_input(Session& session, ByteSpan into) {
  constexpr int kWaitMs = 200;
  for (;;) {
    FF_TRY(session.stop.check());
    pollfd wait{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&wait, 1, kWaitMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ::read(STDIN_FILENO, into.data(), into.size());
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return errno_error(errno, "standard input");
  }
}

// An FFRecord file begins with its index, so all of standard input has to be there first: what is
// no file becomes one without a name.
Result<std::shared_ptr<io::File>> input_as_file(Session& session, RecordSession& run) {
  io::SystemDisk& disk = run.local_disk();
  if (auto file = disk.open("/dev/stdin", {})) {
    FF_TRY(const auto info, (*file)->info());
    if (info.kind == io::FileKind::regular) return std::shared_ptr<io::File>(std::move(*file));
  }
  const char* const dir = std::getenv("TMPDIR");
  const std::string path =
      io::join(dir != nullptr ? dir : "/tmp", "ff-record-" + run.rng().hex_id());
  FF_TRY(std::shared_ptr<io::File> file, disk.open(path, {.access = io::AccessMode::read_write,
                                                          .create = true,
                                                          .exclusive = true,
                                                          .mode = 0600}));
  FF_TRY(disk.remove(path));
  std::vector<std::byte> buffer(kMiB);
  uint64_t at = 0;
  for (;;) {
    FF_TRY(const size_t got, read_input(session, buffer));
    if (got == 0) return file;
    FF_TRY(file->write_at(ByteView(buffer).first(got), at));
    at += got;
  }
}

Result<record::FileSource> tar_source(Session& session, RecordSession& run,
                                      const std::vector<std::string>& paths) {
  record::FileSource source(run.disk());
  uint64_t left_out = 0;
  for (const std::string& path : paths) {
    std::shared_ptr<io::File> archive;
    if (path == "-") {
      FF_TRY(archive, input_as_file(session, run));
    } else {
      FF_TRY(archive, run.disk().open(path, {}));
    }
    FF_TRY(const uint64_t links, source.add_tar(std::move(archive), session.stop));
    left_out += links;
  }
  if (source.samples() == 0) {
    return fail(Errc::not_found, "{}: there is no file in it", fmt::join(paths, ", "));
  }
  if (left_out > 0) session.out.warn("{} links and special files are left out", left_out);
  return source;
}

Result<void> run_pack(Session& session, const RecordOptions& common, const PackOptions& options) {
  FF_TRY(auto paths, FromTo::of(options.paths));
  const auto inputs = std::ranges::count(paths.from, "-");
  if (inputs > 0 && (!options.tar || options.resume || inputs > 1)) {
    return Error{Errc::usage, "'-' is standard input with a tar archive: it needs --tar",
                 "It excludes --resume, which compares with files, and is given once."};
  }
  FF_TRY(auto run, RecordSession::open(session, common, paths.all()));
  FF_TRY(auto source, options.tar ? tar_source(session, *run, paths.from)
                                  : record::FileSource::list(run->disk(), paths.from));
  const auto plan = record::plan_by_size(source, paths.to, options.part_bytes);
  return write_and_report(
      session, *run, source, plan,
      {.replace = options.replace, .resume = options.resume, .names = options.names});
}

Result<void> run_split(Session& session, const RecordOptions& common, const SplitOptions& options) {
  FF_TRY(auto paths, FromTo::of(options.paths));
  if (options.into == 0) return fail(Errc::usage, "--into: at least one file");
  FF_TRY(auto run, RecordSession::open(session, common, paths.all()));
  FF_TRY(auto reader, run->reader(paths.from, true));
  FF_TRY(auto source, record::RecordSource::of(run->disk(), *reader));
  const auto plan = record::plan_by_count(source, paths.to, options.into);
  return write_and_report(session, *run, source, plan,
                          {.replace = options.replace, .names = source.has_names()});
}

}  // namespace

void declare_record_write(Command& record, RecordOptions& common) {
  Command& pack = record.sub("pack", "Write files as samples of FFRecord files");
  auto& options = pack.keep<PackOptions>();
  pack.about(
      "Makes a sample of each file FROM; of a directory, of each file below it, sorted by name at "
      "each level. It leaves out symbolic links and special files below a directory.\n\nWith "
      "--tar, "
      "each FROM is a tar archive ('-': standard input, which ff copies to a file in TMPDIR first "
      "if "
      "it is none), and each file in it becomes a sample, in the order of the archive.\n\nFFRecord "
      "files have no names of samples. With --names, ff writes them to a text file beside each "
      "file, NAME.ffr.names, one a line; 'ff record ls' prints them, and 'ff record split' takes "
      "them along.\n\nTO is one file if its name ends with .ffr. Otherwise it is a "
      "directory, in which ff writes PART_00000.ffr, PART_00001.ffr and so on. Each file appears "
      "only when it is complete and on disk.\n\n--resume continues an interrupted run: ff keeps "
      "files that have the right samples by number and length and are newer than their sources, "
      "and writes the others again.");
  pack.argument("PATH", file(options.paths, "FROM... TO"), "Files and directories, and where to")
      .required();
  pack.option("--part-size", size(options.part_bytes),
              "Most bytes of samples in a file of a directory; a longer sample gets its own");
  pack.flag("--tar", options.tar, "Pack the files in tar archives");
  pack.flag("--names", options.names, "Write the names of the samples to NAME.ffr.names");
  pack.flag("-f,--force", options.replace, "Overwrite files that exist");
  pack.flag("--resume", options.resume, "Continue an interrupted run");
  pack.example("ff record pack images/ train/", "as files of about 1 GiB");
  pack.example("ff record pack a.bin b.bin ff:///data/ab.ffr", "two samples, into a cluster");
  pack.example("zstdcat shard-*.tar.zst | ff record pack --tar --names - shards.ffr",
               "the files in a compressed archive");
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

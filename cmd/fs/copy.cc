// `ff fs cp` and `cat`: copy files into, out of and inside a cluster.
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "cmd/fs/fs.h"
#include "platform/base/clock.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/pipe.h"
#include "storage/client/cluster_tree.h"
#include "storage/client/local_tree.h"
#include "storage/client/stream.h"
#include "storage/client/tree_copier.h"
#include "storage/client/walk.h"

namespace ff::cmd {
namespace {

using Words = std::vector<std::string>;

// Data in flight, and its shared memory, which storage nodes of this host access directly.
constexpr uint64_t kUnderWay = 64 * kMiB;
constexpr uint64_t kCopyMemory = 128 * kMiB;
constexpr uint64_t kLocalUnit = kMiB;
constexpr unsigned kQueueDepth = 128;
constexpr std::string_view kPipe = "-";

struct CpOptions {
  Words paths;  // the last is the destination
  bool recursive = false;
  bool preserve = false;
  bool verify = false;
  bool resume = false;
};

// One operand: a path in the cluster, a pipe, or a local path.
struct Side {
  bool cluster = false;
  bool pipe = false;
  std::string path;
};

Result<Side> side_of(const std::string& word, FsPaths& paths) {
  if (word == kPipe) return Side{.pipe = true, .path = {}};
  if (!client::is_url(word)) return Side{.path = word};
  FF_TRY(auto url, client::parse_url(word));
  Side side{.cluster = true, .path = url.path};
  FF_TRY(paths.add(std::move(url)));
  return side;
}

// The state of one `cp`.
struct Plan {
  std::vector<Side> from;
  Side to;
  std::vector<net::Address> servers;

  static Result<Plan> of(const CpOptions& options) {
    if (options.paths.size() < 2) return fail(Errc::usage, "cp needs a source and a destination");
    Plan plan;
    FsPaths paths;
    for (const std::string& word : options.paths) {
      if (word.empty()) return fail(Errc::usage, "an empty path");
      FF_TRY(auto side, side_of(word, paths));
      plan.from.push_back(std::move(side));
    }
    plan.to = std::move(plan.from.back());
    plan.from.pop_back();
    plan.servers = std::move(paths.servers);
    FF_TRY(plan.check());
    return plan;
  }

 private:
  Result<void> check() const {
    for (const Side& side : from) {
      if (side.cluster != from.front().cluster || side.pipe != from.front().pipe) {
        return fail(Errc::usage,
                    "some sources are in the cluster and some are local: copy them separately");
      }
      if ((side.pipe || to.pipe) && from.size() > 1) {
        return fail(Errc::usage, "'-' is a single stream: give one other path");
      }
    }
    if (from.front().cluster || to.cluster) return {};
    Error error = fail(Errc::usage, "neither the sources nor the target are in the cluster");
    error.hint =
        "Paths in the cluster are written ff:///path or ff://host:port/path; cp(1) copies "
        "local files.";
    return error;
  }
};

Json copy_report_json(const client::CopyReport& report, uint64_t failed, double seconds) {
  return {{"files", report.files},     {"directories", report.directories},
          {"links", report.links},     {"skipped", report.skipped},
          {"resumed", report.resumed}, {"bytes", report.bytes},
          {"failed", failed},          {"seconds", seconds}};
}

Result<void> copy_trees(FsClient& run, const CpOptions& options, const Plan& plan,
                        client::TransferMemory& memory) {
  Session& session = run.session();
  io::AsyncQueue queue(run.disk(), run.loop(), kQueueDepth);
  client::LocalTree local(run.disk(), queue, kLocalUnit);
  client::ClusterTree cluster(run.files(), run.caller());
  const auto end = [&](const Side& side) -> client::FileTree& {
    return side.cluster ? static_cast<client::FileTree&>(cluster) : local;
  };
  Failures failures(session.out);
  Progress progress;
  const client::CopyOptions wanted{.recursive = options.recursive,
                                   .preserve = options.preserve,
                                   .owners = run.caller().is_root(),
                                   .verify = options.verify,
                                   .resume = options.resume,
                                   .umask = run.umask()};
  client::TreeCopier copy(end(plan.from.front()), end(plan.to), memory, wanted, progress,
                          [&failures](Error error) { return failures.add(std::move(error)); });
  Words sources;
  for (const Side& side : plan.from) sources.push_back(side.path);
  const int64_t began_ns = run.loop().now_ns();
  auto bar = session.out.progress("cp", progress, session.stop);
  auto done = run.run(copy.run(std::move(sources), plan.to.path));
  bar.reset();
  const int64_t elapsed_ns = run.loop().now_ns() - began_ns;
  const client::CopyReport& report = copy.report();
  session.out.data(copy_report_json(report, failures.count(), to_seconds(elapsed_ns)));
  FF_TRY(std::move(done));
  FF_TRY(failures.result());
  const double rate = static_cast<double>(report.bytes) * 1e9 /
                      static_cast<double>(std::max<int64_t>(elapsed_ns, 1));
  session.out.note(
      "copied {} files, {} in {}, {}{}", format_count(report.files), format_size(report.bytes),
      format_duration(elapsed_ns), format_rate(rate),
      report.skipped == 0 ? "" : fmt::format("; {} existed already", format_count(report.skipped)));
  return {};
}

Task<Result<uint64_t>> store_input(FsClient& run, client::TransferMemory& memory, std::string path,
                                   Progress& progress) {
  client::ClusterTree cluster(run.files(), run.caller());
  FF_CO_TRY(const auto there, co_await cluster.stat(path, true));
  if (path.ends_with('/') || (there && there->is(meta::InodeType::directory))) {
    Error error = errno_error(EISDIR, printable(path));
    error.hint = "Give a file name for the data from the pipe.";
    co_return error;
  }
  client::ReadSome read = [&run](size_t size) {
    return io::read_pipe(run.loop(), STDIN_FILENO, size);
  };
  auto stored = co_await client::stream_to_file(memory, cluster, path, 0666 & ~run.umask(),
                                                std::move(read), progress);
  if (!stored) co_return client::with_path(path, std::move(stored).error());
  co_return stored;
}

Task<Result<uint64_t>> give_output(FsClient& run, client::TransferMemory& memory, std::string path,
                                   Progress& progress) {
  client::ClusterTree cluster(run.files(), run.caller());
  FF_CO_TRY(const auto there, co_await cluster.stat(path, true));
  if (!there) co_return errno_error(ENOENT, printable(path));
  if (there->is(meta::InodeType::directory)) co_return errno_error(EISDIR, printable(path));
  progress.total += there->size;
  auto opened = co_await cluster.open(path, *there);
  if (!opened) co_return client::with_path(path, std::move(opened).error());
  client::WriteAll write = [&run](std::string bytes) {
    return io::write_pipe(run.loop(), STDOUT_FILENO, std::move(bytes));
  };
  auto given = co_await client::file_to_stream(memory, **opened, std::move(write), progress);
  (void)co_await (*opened)->close();
  // The error is about the pipe, not the file.
  if (!given && given.error().sys == EPIPE) co_return std::move(given).error();
  if (!given) co_return client::with_path(path, std::move(given).error());
  co_return given;
}

// If the reader of stdout closes it, end like other filters (SIGPIPE).
void end_as_filter(const Error& error) {
  if (error.sys != EPIPE) return;
  ::signal(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
}

Result<void> no_json(const Output& out) {
  if (!out.mode().json) return {};
  return fail(Errc::usage, "--json and the bytes of files exclude each other on standard output");
}

Result<void> run_cp(Session& session, const FsOptions& common, const CpOptions& options) {
  FF_TRY(const auto plan, Plan::of(options));
  if (plan.to.pipe) FF_TRY(no_json(session.out));
  FF_TRY(auto run,
         FsClient::open(session, common, plan.servers, {.chains = true, .arena = kCopyMemory}));
  client::TransferMemory memory(run->loop(), run->arena(), kUnderWay);
  if (!plan.to.pipe && !plan.from.front().pipe) return copy_trees(*run, options, plan, memory);
  Progress progress;
  auto bar = session.out.progress("cp", progress, session.stop);
  auto moved = plan.to.pipe ? run->run(give_output(*run, memory, plan.from.front().path, progress))
                            : run->run(store_input(*run, memory, plan.to.path, progress));
  bar.reset();
  if (!moved) end_as_filter(moved.error());
  FF_TRY(const uint64_t bytes, std::move(moved));
  session.out.data({{"files", 1}, {"bytes", bytes}});
  return {};
}

Result<void> run_cat(Session& session, const FsOptions& common, const Words& words) {
  FF_TRY(no_json(session.out));
  FF_TRY(const auto paths, FsPaths::of(words));
  FF_TRY(auto run,
         FsClient::open(session, common, paths.servers, {.chains = true, .arena = kCopyMemory}));
  client::TransferMemory memory(run->loop(), run->arena(), kUnderWay);
  Progress progress;
  Failures failures(session.out);
  for (const std::string& path : paths.paths) {
    auto given = run->run(give_output(*run, memory, path, progress));
    if (!given) end_as_filter(given.error());
    if (!given && !failures.add(std::move(given).error())) break;
  }
  return failures.result();
}

}  // namespace

void declare_fs_copy(Command& fs, const FsOptions& common) {
  Command& cp = fs.sub("cp", "Copy files into a cluster, out of it, or within it");
  auto& options = cp.keep<CpOptions>();
  cp.about(
      "Copies FROM to TO, or into TO if that is a directory; several FROM require a directory. "
      "ff://HOST:PORT/PATH and ff:///PATH are in the cluster, '-' is standard input or output, and "
      "all other paths are on this machine.\n\nff writes a file as .NAME.ff-part beside its "
      "destination and renames it when it is complete and durable, so others see either the old "
      "file or the new one. Without -p a copy gets the mode of its source minus the umask, and the "
      "current time. With -r ff copies symbolic links as links; it reports and skips what it "
      "cannot copy. Holes of sparse files stay holes.\n\n--resume continues an interrupted copy: "
      "beside the part of a large file ff records how far it has come, and it skips files that "
      "exist with the same size and time. It preserves times for that purpose, so use it in the "
      "first run as well.\n\n--verify reads the copies back from their destination, compares their "
      "CRC32C, and exits with 3 if one differs.");
  cp.argument("PATH", text(options.paths, "FROM... TO"), "Source paths and the destination")
      .required();
  cp.flag("-r,--recursive", options.recursive, "Copy directories with their content");
  cp.flag("-p,--preserve", options.preserve, "Preserve modes and times, and for root also owners");
  cp.flag("--verify", options.verify, "Read the copies back and compare");
  cp.flag("--resume", options.resume, "Continue an interrupted copy");
  cp.example("ff fs cp model.bin ff:///data/", "copy a file into a directory");
  cp.example("ff fs cp -rp --resume ff://node1:4400/data/run7 .", "copy a tree out of the cluster");
  cp.example("pg_dump db | ff fs cp - ff:///backup/db.sql", "from a pipe");
  cp.blocking();
  cp.run([&](Session& session) { return run_cp(session, common, options); });

  Command& cat = fs.sub("cat", "Print files");
  auto& files = cat.keep<Words>();
  cat.about("Writes the content of each PATH to standard output, one after the other.");
  cat.argument("PATH", text(files, "PATH"), "Files").required();
  cat.example("ff fs cat /logs/a /logs/b | less", "print two files");
  cat.blocking();
  cat.run([&](Session& session) { return run_cat(session, common, files); });
}

}  // namespace ff::cmd

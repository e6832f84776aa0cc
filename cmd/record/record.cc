// `ff record`: the options of its subcommands, and the disk they work on. Subcommands: write.cc,
// read.cc.
#include "cmd/record/record.h"

#include <algorithm>
#include <thread>

#include "platform/base/clock.h"

namespace ff::cmd {

namespace {

constexpr unsigned kWritersMax = 8;  // more only compete for the disk

unsigned writer_count(const RecordOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp(std::thread::hardware_concurrency(), 1U, kWritersMax);
}

}  // namespace

RecordSession::RecordSession(Session& session, const RecordOptions& options)
    : session_(session),
      rng_(system_seed()),
      work_{.rng = rng_,
            .stop = session.stop,
            .progress = progress_,
            .threads = writer_count(options)},
      begin_ns_(session.stop.clock().steady_ns()) {}

Result<std::unique_ptr<RecordSession>> RecordSession::open(Session& session,
                                                           const RecordOptions& options,
                                                           std::vector<std::string*> paths) {
  std::unique_ptr<RecordSession> made(new RecordSession(session, options));
  for (std::string* const path : paths) {
    if (!client::is_url(*path)) continue;
    FF_TRY(const auto url, client::parse_url(*path));
    if (made->cluster_ == nullptr) {
      FF_TRY(made->cluster_, ClusterAccess::open(session.stop, made->local_,
                                                 {.url = url,
                                                  .meta = options.meta,
                                                  .net = options.net,
                                                  .name = "record",
                                                  .chunk_size = 0}));
    } else if (!made->cluster_->has_servers_of(url)) {
      return fail(Errc::usage, "{}: names other servers than the path before it", *path);
    }
    *path = made->cluster_->path(url.path);
  }
  return made;
}

Result<std::unique_ptr<record::Reader>> RecordSession::reader(const std::vector<std::string>& paths,
                                                              bool check) {
  FF_TRY(const auto files, record::record_files(disk(), paths));
  FF_TRY(auto made, record::Reader::open(disk(), files, {.check = check}));
  for (const auto& file : made->files()) {
    if (file.index.checked) continue;
    session_.out.warn("{}: its index has no CRC-32, so damage of it would not be noticed",
                      file.open->path());
  }
  return made;
}

std::unique_ptr<ProgressBar> RecordSession::bar(const std::string& label) {
  return session_.out.progress(label, progress_, session_.stop);
}

void declare_record(Command& record) {
  auto& options = record.keep<RecordOptions>();
  record.about(
      "Packs many small samples of training data into few large files, which are read faster: "
      "FFRecord files (NAME.ffr), as HFAiLab's ffrecord writes and reads them. A file is an index "
      "with the place and the CRC-32 of each sample, and then the samples. Samples have numbers, "
      "from 0.\n\nPaths may be in a cluster, as ff://HOST:PORT[,HOST:PORT]/PATH (ff:///PATH uses "
      "--meta). Where a command expects FFRecord files, a directory means its files *.ffr, sorted "
      "by name, and several files count as one list.\n\nPrograms in Python read and write such "
      "files with ff.record.");
  record
      .option("--threads", number(options.threads, "N"),
              "Number of threads that write files; 0 means one per core, at most 8")
      .config("record.threads");
  declare_meta(record, options.meta);
  declare_net(record, options.net);
  declare_record_write(record, options);
  declare_record_read(record, options);
}

}  // namespace ff::cmd

// Common part of the commands of `ff record`: the disk of their paths, and one declare_ function
// per group of subcommands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cmd/cli/cli.h"
#include "cmd/options/cluster_access.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_options.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "training/record/parts.h"
#include "training/record/reader.h"

namespace ff::cmd {

struct RecordOptions {
  std::string meta = kDefaultMeta;
  NetOptions net;
  uint32_t threads = 0;  // 0: chosen automatically
};

// Owns the disk and the counters of one command.
class RecordSession {
 public:
  // Connects to the cluster of the ff:// addresses among `paths`, and makes all of them paths for
  // disk(). Errc::usage: they name two clusters.
  static Result<std::unique_ptr<RecordSession>> open(Session& session, const RecordOptions& options,
                                                     std::vector<std::string*> paths);

  io::SystemDisk& local_disk() { return local_; }
  Rng& rng() { return rng_; }
  io::Disk& disk() { return cluster_ != nullptr ? cluster_->disk() : local_; }
  record::RunContext& work() { return work_; }
  // Of all FFRecord files that `paths` name.
  Result<std::unique_ptr<record::Reader>> reader(const std::vector<std::string>& paths, bool check);
  std::unique_ptr<ProgressBar> bar(const std::string& label);
  int64_t elapsed_ns() const { return session_.stop.clock().steady_ns() - begin_ns_; }

 private:
  RecordSession(Session& session, const RecordOptions& options);

  Session& session_;
  io::SystemDisk local_;
  std::unique_ptr<ClusterAccess> cluster_;
  SeededRng rng_;
  Progress progress_;
  record::RunContext work_;
  int64_t begin_ns_;
};

void declare_record_write(Command& record, RecordOptions& common);
void declare_record_read(Command& record, RecordOptions& common);

}  // namespace ff::cmd

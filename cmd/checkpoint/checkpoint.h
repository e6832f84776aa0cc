// What the files of `ff checkpoint` share: its common options, the wiring of a Context, and one
// declare_ function per subcommand.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cmd/bench/device_speed.h"
#include "cmd/cli/cli.h"
#include "cmd/options/cluster_access.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_options.h"
#include "platform/base/rng.h"
#include "platform/io/system_disk.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/save/save.h"

namespace ff::cmd {

struct CheckpointOptions {
  std::string store;
  uint32_t threads = 0;  // 0: as many as do
  std::string meta = kDefaultMeta;
  NetOptions net;
};

// The machine behind a checkpoint::Context, for as long as a command runs.
class CheckpointRun {
 public:
  CheckpointRun(Session& session, const CheckpointOptions& options);
  CheckpointRun(const CheckpointRun&) = delete;
  CheckpointRun& operator=(const CheckpointRun&) = delete;

  // Before context(), once: connects when it lies in a cluster. Errc::usage when none was named.
  Result<std::string> store();
  checkpoint::Context& context() { return *context_; }
  // Whether the store lies in a cluster, where others may write to it, too.
  bool in_cluster() const { return cluster_ != nullptr; }
  // A bar over the context's progress until it is destroyed.
  std::unique_ptr<ProgressBar> bar(const std::string& label);

 private:
  void work_on(io::Disk& disk);

  Session& session_;
  const CheckpointOptions& options_;
  io::SystemDisk disk_;
  std::unique_ptr<ClusterAccess> cluster_;
  SeededRng rng_;
  Progress progress_;
  std::optional<checkpoint::Context> context_;
};

// The user, host and version that an index records.
checkpoint::SaverIdentity identity(io::Disk& disk);

// "2.31GiB in 1.2s, 1.93GiB/s", and the share of the device's own speed when it was measured.
std::string speed_words(uint64_t bytes, int64_t elapsed_ns, std::optional<double> device_rate);

void declare_checkpoint_save(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_watch(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_load(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_export(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_salvage(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_ls(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_show(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_diff(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_latest(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_verify(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_forget(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_prune(Command& checkpoint, CheckpointOptions& common);

}  // namespace ff::cmd

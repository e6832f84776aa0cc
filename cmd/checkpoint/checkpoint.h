// Common part of `ff checkpoint`: shared options, the environment of a checkpoint::Context, and one
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
  uint32_t threads = 0;  // 0: chosen automatically
  std::string meta = kDefaultMeta;
  NetOptions net;
};

// Owns the disk, cluster connection and progress that a checkpoint::Context refers to.
class CheckpointSession {
 public:
  CheckpointSession(Session& session, const CheckpointOptions& options);
  CheckpointSession(const CheckpointSession&) = delete;
  CheckpointSession& operator=(const CheckpointSession&) = delete;

  // The path of the store; connects to its cluster if it is an ff:// address. To be called once,
  // before context(). Errc::usage without a store.
  Result<std::string> store();
  checkpoint::Context& context() { return *context_; }
  // Whether the store is in a cluster, where other machines may write to it.
  bool in_cluster() const { return cluster_ != nullptr; }
  // A progress bar of the context.
  std::unique_ptr<ProgressBar> bar(const std::string& label);

 private:
  void use_disk(io::Disk& disk);

  Session& session_;
  const CheckpointOptions& options_;
  io::SystemDisk disk_;
  std::unique_ptr<ClusterAccess> cluster_;
  SeededRng rng_;
  Progress progress_;
  std::optional<checkpoint::Context> context_;
};

// User, host and version for the index of a checkpoint.
checkpoint::SaverIdentity identity(io::Disk& disk);

// What `ff checkpoint save` prints of a save; `rank` is the one that has saved.
Json save_report_json(const checkpoint::SaveReport& report);
void print_report(Output& out, const checkpoint::SaveReport& report, uint32_t rank,
                  const std::optional<DeviceSpeed>& device);

// "2.31GiB in 1.2s, 1.93GiB/s", and the percentage of the device speed if that was measured.
std::string format_speed(uint64_t bytes, int64_t elapsed_ns, std::optional<double> device_rate);

void declare_checkpoint_save(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_watch(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_import(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_load(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_export(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_salvage(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_ls(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_show(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_diff(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_latest(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_verify(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_repair(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_forget(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_prune(Command& checkpoint, CheckpointOptions& common);
void declare_checkpoint_plan(Command& checkpoint);

}  // namespace ff::cmd

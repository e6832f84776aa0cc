// What the files of `ff checkpoint` share: its common options, the wiring of a Context, and one
// declare_ function per subcommand.
#pragma once

#include <memory>
#include <string>

#include "base/rng.h"
#include "ckpt/context.h"
#include "ckpt/save.h"
#include "cmd/cli.h"
#include "cmd/device_speed.h"
#include "io/system_disk.h"

namespace ff::cmd {

struct CheckpointOptions {
  std::string store;
  uint32_t threads = 0;  // 0: one a core, at most kThreadsMax
};

// The machine behind a ckpt::Context, for as long as a command runs.
class CheckpointRun {
 public:
  CheckpointRun(Session& session, const CheckpointOptions& options);
  CheckpointRun(const CheckpointRun&) = delete;
  CheckpointRun& operator=(const CheckpointRun&) = delete;

  // Errc::usage when no store was named.
  Result<std::string> store() const;
  ckpt::Context& context() { return context_; }
  io::Disk& disk() { return disk_; }
  // A bar over the context's progress until it is destroyed.
  std::unique_ptr<ProgressBar> bar(const std::string& label);

 private:
  Session& session_;
  const CheckpointOptions& options_;
  io::SystemDisk disk_;
  SeededRng rng_;
  Progress progress_;
  ckpt::Context context_;
};

// The user, host and version that an index records.
ckpt::Identity identity(io::Disk& disk);

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

// `ff checkpoint`: the common options of its subcommands, and the context that training/checkpoint
// needs. Subcommands: save.cc, import.cc, load.cc, list.cc, keep.cc.
#include "cmd/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "cmd/cli/build_info.h"
#include "platform/base/clock.h"
#include "platform/base/units.h"
#include "platform/net/resolve.h"
#include "training/checkpoint/format/chunk_file.h"
#include "training/checkpoint/save/saver_identity.h"

namespace ff::cmd {
namespace {

// More workers only compete for the disk.
constexpr unsigned kThreadsMax = 8;
// Minimum in a cluster: workers wait for the network, not for a processor.
constexpr unsigned kThreadsInCluster = 6;

unsigned worker_count(const CheckpointOptions& options, bool in_cluster) {
  if (options.threads > 0) return options.threads;
  const unsigned least = in_cluster ? kThreadsInCluster : 1;
  return std::clamp(std::thread::hardware_concurrency(), least, kThreadsMax);
}

}  // namespace

CheckpointSession::CheckpointSession(Session& session, const CheckpointOptions& options)
    : session_(session), options_(options), rng_(system_seed()) {
  use_disk(disk_);
}

void CheckpointSession::use_disk(io::Disk& disk) {
  context_.emplace(checkpoint::Context{.disk = disk,
                                       .clock = session_.stop.clock(),
                                       .rng = rng_,
                                       .stop = session_.stop,
                                       .progress = progress_,
                                       .threads = worker_count(options_, in_cluster())});
}

Result<std::string> CheckpointSession::store() {
  if (options_.store.empty()) {
    return Error{
        Errc::usage, "no store is given",
        "Give --store DIR, set FF_STORE, or put `[checkpoint] store = \"DIR\"` in ff.toml."};
  }
  if (!client::is_url(options_.store)) return options_.store;
  FF_TRY(const auto url, client::parse_url(options_.store));
  FF_TRY(cluster_, ClusterAccess::open(session_.stop, disk_,
                                       {.url = url,
                                        .meta = options_.meta,
                                        .net = options_.net,
                                        .name = "checkpoint",
                                        .chunk_size = checkpoint::kChunkBytes}));
  use_disk(cluster_->disk());
  return cluster_->path(url.path);
}

std::unique_ptr<ProgressBar> CheckpointSession::bar(const std::string& label) {
  return session_.out.progress(label, progress_, session_.stop);
}

checkpoint::SaverIdentity identity(io::Disk& disk) {
  return checkpoint::saver_identity(disk, net::host_name(), std::string(kBuildInfo.version));
}

std::string format_speed(uint64_t bytes, int64_t elapsed_ns, std::optional<double> device_rate) {
  const double seconds = std::max(1e-9, to_seconds(elapsed_ns));
  const double rate = static_cast<double>(bytes) / seconds;
  std::string words = fmt::format("{} in {}, {}", format_size(bytes), format_duration(elapsed_ns),
                                  format_rate(rate));
  if (device_rate && *device_rate > 0) {
    words += fmt::format(" ({:.0f}% of the device's {})", 100 * rate / *device_rate,
                         format_rate(*device_rate));
  }
  return words;
}

void declare_checkpoint(Command& checkpoint) {
  auto& common = checkpoint.keep<CheckpointOptions>();
  checkpoint.about(
      "Saves training state in a store, verifies it, removes old checkpoints by rules, and "
      "restores it byte for byte.\n\nA store is a directory, or is in a cluster of 'ff serve-meta' "
      "and 'ff serve-storage' as ff://HOST:PORT[,HOST:PORT]/PATH, without a mount (ff:///PATH uses "
      "--meta). ff splits tensors of .safetensors files, and all other files, into chunks. It "
      "stores each distinct chunk once, however many checkpoints contain it, so a step that "
      "changes a tenth of the state writes about a tenth. ff checks the CRC32C of a chunk at every "
      "read. A checkpoint appears completely or not at all, also when the machine crashes.\n\nA "
      "checkpoint has the name RUN@STEP; RUN alone means the highest step of that run, @STEP a "
      "step of the run 'default'.");
  checkpoint.option("--store", dir(common.store), "Directory or ff:// URL of the store")
      .config("checkpoint.store")
      .env("FF_STORE");
  checkpoint
      .option("--threads", number(common.threads),
              "Number of threads that move and check data; 0 means one per core, at most 8, and at "
              "least 6 for a store in a cluster")
      .config("checkpoint.threads")
      .env("FF_CHECKPOINT_THREADS");
  declare_meta(checkpoint, common.meta);
  declare_net(checkpoint, common.net);
  declare_checkpoint_save(checkpoint, common);
  declare_checkpoint_load(checkpoint, common);
  declare_checkpoint_ls(checkpoint, common);
  declare_checkpoint_show(checkpoint, common);
  declare_checkpoint_diff(checkpoint, common);
  declare_checkpoint_latest(checkpoint, common);
  declare_checkpoint_verify(checkpoint, common);
  declare_checkpoint_repair(checkpoint, common);
  declare_checkpoint_forget(checkpoint, common);
  declare_checkpoint_prune(checkpoint, common);
  declare_checkpoint_export(checkpoint, common);
  declare_checkpoint_import(checkpoint, common);
  declare_checkpoint_salvage(checkpoint, common);
  declare_checkpoint_watch(checkpoint, common);
  declare_checkpoint_plan(checkpoint);
}

}  // namespace ff::cmd

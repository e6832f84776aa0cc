// Lists the content of a store: runs, steps, their state (committed, waiting for ranks, verified),
// and resolves RUN@STEP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/index.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

// An attempt of several ranks to save a step that is not committed.
struct SaveAttempt {
  std::string id;
  uint32_t world = 0;
  std::vector<uint32_t> present;  // ranks with a shard, ascending
  std::vector<uint32_t> missing;  // ranks without one, at most kMissingShown
  uint64_t missing_count = 0;
  int64_t newest_ns = 0;  // modification time of the newest shard
};
constexpr size_t kMissingShown = 16;

struct Verification {
  int64_t at_ns = 0;
  std::string ff_version;
};

struct StepInfo {
  StepName name;
  bool committed = false;
  std::optional<IndexSummary> summary;   // committed and readable
  std::string damage;                    // committed, but the index is unreadable (no summary), or
                                         // verify found damaged chunks: the reason
  std::optional<Verification> verified;  // of this index
  std::vector<SaveAttempt> attempts;     // of steps that are not committed
};

Result<std::vector<std::string>> list_runs(io::Disk& disk, const Store& store);

// Numbers of all step folders of a run, ascending, committed or not. A run that does not exist has
// none.
Result<std::vector<uint64_t>> list_steps(io::Disk& disk, const Store& store,
                                         const std::string& run);
Result<StepInfo> step_info(io::Disk& disk, const Store& store, const StepName& name);

// The committed steps of a run, ascending.
Result<std::vector<uint64_t>> committed_steps(io::Disk& disk, const Store& store,
                                              const std::string& run);

// The readable checkpoint with the highest step; Errc::not_found when the run has none.
Result<StepName> latest_step(io::Disk& disk, const Store& store, const std::string& run);

// "RUN@STEP", "RUN" (its highest step), "@STEP" (of run "default"). Errc::not_found suggests
// existing names; Errc::usage: malformed text.
Result<StepName> resolve_step(io::Disk& disk, const Store& store, std::string_view text);

// Makes `latest` name the highest step, durably. It is for programs that read a store without ff
// and is replaced, never removed: latest_step() does not need it.
Result<void> update_latest(Context& context, const Store& store, const std::string& run);
// Replaces `latest`, durably.
Result<void> write_latest(Context& context, const Store& store, const StepName& name,
                          const simd::Digest& index_digest);
// The content of `latest`, unchecked; nothing when it is absent or damaged.
struct LatestMark {
  uint64_t step = 0;
  std::string index_digest;
};
std::optional<LatestMark> read_latest(io::Disk& disk, const Store& store, const std::string& run);

// The `verified` file, with the digest of the index that verify has checked.
Result<void> write_verified(Context& context, const Store& store, const StepName& name,
                            const simd::Digest& index_digest, std::string_view ff_version);
struct VerifiedMark {
  Verification verified;
  std::string index_digest;
};
// Nothing when the file does not exist; Errc::corrupt when it is damaged.
Result<std::optional<VerifiedMark>> read_verified(io::Disk& disk, const Store& store,
                                                  const StepName& name);

// The `damaged` file: what the last verify found in the checkpoint with this index. It stays until
// a verify of the whole checkpoint finds no damage.
struct DamagedMark {
  Verification found;
  std::string index_digest;
  uint64_t chunks = 0;  // damaged or missing
};
Result<void> write_damaged(Context& context, const Store& store, const StepName& name,
                           const simd::Digest& index_digest, const DamagedMark& mark);
// As read_verified().
Result<std::optional<DamagedMark>> read_damaged(io::Disk& disk, const Store& store,
                                                const StepName& name);

// The folder name of an attempt: WORLD-ID, bytes outside [A-Za-z0-9._-] as %NN.
std::string attempt_dir_name(uint32_t world, std::string_view attempt);
Result<std::vector<SaveAttempt>> list_attempts(io::Disk& disk, const Store& store,
                                               const StepName& name);

}  // namespace ff::checkpoint

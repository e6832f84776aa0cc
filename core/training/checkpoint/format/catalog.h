// What a store holds: runs, steps, which are committed, which wait for ranks, which are verified,
// and what RUN@STEP means.
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

// One try of several ranks to save a step that has not committed.
struct Attempt {
  std::string id;
  uint32_t world = 0;
  std::vector<uint32_t> present;  // ranks whose shard is there, ascending
  std::vector<uint32_t> missing;  // the first kMissingShown of those that are not
  uint64_t missing_count = 0;
  int64_t newest_ns = 0;  // modification time of the newest shard
};
constexpr size_t kMissingShown = 16;

struct Verified {
  int64_t at_ns = 0;
  std::string ff_version;
};

struct StepInfo {
  StepName name;
  bool committed = false;
  std::optional<IndexSummary> summary;  // committed and readable
  std::string damage;                   // committed, but the index cannot be read: why
  std::optional<Verified> verified;     // a mark that fits this index
  std::vector<Attempt> attempts;        // of steps that are not committed
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

// The step saved last: what `latest` names when that is committed, else (a crash between the
// commit and the rename of `latest`, a damaged `latest`) the highest committed step.
// Errc::not_found when the run has none.
Result<StepName> latest_step(io::Disk& disk, const Store& store, const std::string& run);

// "RUN@STEP", "RUN" (its latest), "@STEP" (of run "default"). Errc::not_found suggests what there
// is; Errc::usage for text that is neither.
Result<StepName> resolve_step(io::Disk& disk, const Store& store, std::string_view text);

// Replaces `latest`, durably.
Result<void> write_latest(Context& context, const Store& store, const StepName& name,
                          const simd::Digest& index_digest);
// What `latest` says, unchecked; nothing when it is absent or damaged.
struct LatestMark {
  uint64_t step = 0;
  std::string index_digest;
};
std::optional<LatestMark> read_latest(io::Disk& disk, const Store& store, const std::string& run);

// The mark that verify leaves: it names the digest of the index it proved.
Result<void> write_verified(Context& context, const Store& store, const StepName& name,
                            const simd::Digest& index_digest, std::string_view ff_version);
struct VerifiedMark {
  Verified verified;
  std::string index_digest;
};
// Nothing when there is no mark; Errc::corrupt when it is damaged.
Result<std::optional<VerifiedMark>> read_verified(io::Disk& disk, const Store& store,
                                                  const StepName& name);

// The folder name of an attempt: WORLD-ID, bytes outside [A-Za-z0-9._-] as %NN.
std::string attempt_dir_name(uint32_t world, std::string_view attempt);
Result<std::vector<Attempt>> list_attempts(io::Disk& disk, const Store& store,
                                           const StepName& name);

}  // namespace ff::checkpoint

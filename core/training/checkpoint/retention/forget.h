// Retention: forget removes checkpoints that no rule keeps. Their chunks stay in the store until
// `prune`.
//
// Rules add up: a checkpoint stays if any rule keeps it. In any case the newest verified checkpoint
// of each run stays, and incomplete steps are not touched. "Newest" is the highest step. Only
// `whole_runs` removes everything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct ForgetOptions {
  // Rules; at least one, or `steps`. Without a rule only `steps` are forgotten.
  std::optional<uint64_t> keep_last;      // readable steps of each run, from the highest
  std::optional<uint64_t> keep_every;     // steps divisible by it
  std::optional<int64_t> keep_within_ns;  // saved within this time before now, by the wall clock
  std::vector<std::string> runs;          // to which the rules apply; empty: all
  std::vector<std::string> steps;         // RUN@STEP to forget even if a rule keeps it
  // Remove `runs` with all of their checkpoints, verified and incomplete ones too. Without rules
  // and `steps`.
  bool whole_runs = false;
  bool apply = false;  // false: only make the plan
  std::string ff_version;
};

struct KeptStep {
  StepName name;
  std::vector<std::string> reasons;  // "last 5", "every 1000", ...
};

// A run that loses nothing, because none of its checkpoints is intact.
struct BlockedRun {
  std::string run;
  uint64_t checkpoints = 0;
};

struct ForgetReport {
  std::vector<KeptStep> kept;  // of the affected runs, by run and step
  std::vector<StepName> forgotten;
  std::vector<BlockedRun> blocked;
  bool applied = false;
  int64_t elapsed_ns = 0;
};

// In a run that loses steps and has no verified checkpoint, forget first verifies the newest one,
// or the next older one if that is damaged (also in a dry run, so that the plan is right). Errors:
// usage (no rule and no step), not_found, refused (a step that must stay; another forget runs; a
// read-only store), interrupted, deadline. A run without an intact checkpoint is in
// `blocked`; the others are not affected. After an error in the plan nothing is changed; after a
// later error each step is either complete or forgotten.
Result<ForgetReport> forget(Context& context, const std::string& store_path,
                            const ForgetOptions& options);

}  // namespace ff::checkpoint

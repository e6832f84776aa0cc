// Retention: which checkpoints stay, and how the others go. What a checkpoint used stays in the
// store until `prune`.
//
// Rules add up: what one of them keeps stays. Whatever the rules, the newest verified checkpoint
// of each run stays, and what is incomplete is not touched. "Newest" is the highest step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct ForgetOptions {
  // Rules; at least one, or `steps`. Without a rule only `steps` go.
  std::optional<uint64_t> keep_last;      // the highest so many of each run that can be read
  std::optional<uint64_t> keep_every;     // steps divisible by it
  std::optional<int64_t> keep_within_ns;  // saved within this time before now, by the wall clock
  std::vector<std::string> runs;          // the rules are for these; empty: all
  std::vector<std::string> steps;         // RUN@STEP to forget, rules or not
  bool apply = false;                     // else only the plan is made
  std::string ff_version;
};

struct KeptStep {
  StepName name;
  std::vector<std::string> reasons;  // "last 5", "every 1000", ...
};

struct ForgetReport {
  std::vector<KeptStep> kept;  // of the runs concerned, by run and step
  std::vector<StepName> forgotten;
  bool applied = false;
  int64_t elapsed_ns = 0;
};

// In a run where something is to go and nothing is verified, the newest checkpoint is verified
// (also in a dry run: the plan must be true), and the next older one if it is damaged.
// Errors: usage (no rule and no step), not_found, refused (a step that has to stay; another
// forget runs; a read-only store), incomplete (none of a run's checkpoints could be verified),
// interrupted, deadline. Before an error in the plan nothing was changed; after one later each
// step is there wholly or not at all.
Result<ForgetReport> forget(Context& context, const std::string& store_path,
                            const ForgetOptions& options);

}  // namespace ff::checkpoint

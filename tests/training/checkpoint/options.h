// Shortcuts for the options that most checkpoint tests use.
#pragma once

#include <string>
#include <utility>

#include "training/checkpoint/load/load.h"
#include "training/checkpoint/load/verify.h"
#include "training/checkpoint/retention/prune.h"

namespace ff::checkpoint {

// Load checkpoint `name` (RUN[@STEP]) to `dest`.
inline LoadOptions load_to(std::string name, std::string dest) {
  LoadOptions options;
  options.name = std::move(name);
  options.dest = std::move(dest);
  return options;
}

// Verify every checkpoint and the store's own files.
inline VerifyOptions everything() {
  VerifyOptions options;
  options.all = true;
  return options;
}

// Verify these checkpoints.
inline VerifyOptions only(std::string name) {
  VerifyOptions options;
  options.names = {std::move(name)};
  return options;
}

// Prune unused chunks of any age.
inline PruneOptions without_grace() {
  PruneOptions options;
  options.grace_ns = 0;
  return options;
}

}  // namespace ff::checkpoint

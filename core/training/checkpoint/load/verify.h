// Verify reads and checks every byte of a checkpoint, and reports damage by tensor, file and chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct VerifyOptions {
  std::vector<std::string> names;  // RUN[@STEP]; empty with `all`: every committed checkpoint
  bool all = false;
  double sample = 1.0;  // share of the chunks that is read, 0 < sample <= 1; below 1 no
                        // checkpoint is marked as verified
  std::string ff_version;
};

struct DamageEntry {
  std::string where;  // "default@3: chunk 12ab…", or a path
  std::string reason;
  std::string holds;  // tensors and files
};

struct VerifyReport {
  std::vector<StepName> intact;
  std::vector<StepName> damaged;
  std::vector<DamageEntry> damage;
  std::vector<simd::Digest> bad_chunks;  // damaged or missing, each once
  uint64_t set_aside = 0;                // of these, files that were moved aside (set_aside.h)
  uint64_t chunks = 0;                   // read and checked
  uint64_t chunks_total = 0;             // of these checkpoints
  uint64_t bytes = 0;                    // of data checked
  int64_t elapsed_ns = 0;
};

// Damage is in the report, not an error. Damaged chunk files are moved aside, so that the next save
// of their data writes them again; damaged and intact checkpoints are marked. On a store that this
// user may not write, neither is done. Errors: not_found, usage, interrupted, deadline, I/O.
Result<VerifyReport> verify(Context& context, const std::string& store_path,
                            const VerifyOptions& options);

}  // namespace ff::checkpoint

// Repair stores damaged or missing chunks of a checkpoint again, from other places that have their
// data: another store, or the files that were saved. A chunk's name is the digest of its data, so
// nothing else can get into the checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/verify.h"

namespace ff::checkpoint {

struct RepairOptions {
  std::string name;  // RUN[@STEP]
  // Directories of other stores, and files or directories that were saved. The store's own chunk
  // files that verify has moved aside are tried first.
  std::vector<std::string> sources;
  std::string ff_version;
};

struct RepairReport {
  StepName name;
  uint64_t damaged = 0;   // chunks, damaged or missing, before the repair
  uint64_t repaired = 0;  // of these
  std::vector<DamageEntry> left;
  int64_t elapsed_ns = 0;
};

// Verifies the checkpoint first, and again after the repair. What could not be repaired is in the
// report, not an error. Errors: usage, not_found, refused (a source store whose digests are of
// another kind; no permission), corrupt (the index is damaged: only `salvage` helps), disk_full,
// failed, interrupted, deadline.
Result<RepairReport> repair(Context& context, const std::string& store_path,
                            const RepairOptions& options);

}  // namespace ff::checkpoint

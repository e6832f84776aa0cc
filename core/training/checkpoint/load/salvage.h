// Salvaging: what can still be proved of a damaged checkpoint, restored. Every chunk is read and
// checked first; then a repaired index is written that names only what is good, and loaded.
//
// A file comes back whole under its own name when nothing of it is damaged. Of a damaged
// safetensors file the good tensors come back, in a new file of that name. A damaged file of
// another kind is left out. Tensors whose file line in the index is lost come back in a file
// salvaged-line-N.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

constexpr size_t kLostShown = 1000;  // entries in SalvageReport::lost; bounds a report

struct SalvageOptions {
  std::string name;  // RUN[@STEP]
  std::string dest;  // absent, or an empty directory
};

struct Lost {
  std::string file;    // empty when it is not known
  std::string tensor;  // empty: the file itself
  std::string reason;
};

struct SalvageReport {
  StepName name;
  uint64_t files_whole = 0;         // directories and links included
  uint64_t files_partial = 0;       // new files with the good tensors of damaged ones
  uint64_t tensors = 0;             // in both
  uint64_t bytes = 0;               // written
  std::vector<Lost> lost;           // the first kLostShown
  uint64_t lost_count = 0;          // 0: nothing is damaged
  bool store_file_damaged = false;  // ff-store.json; salvage does without it
  int64_t elapsed_ns = 0;
};

// What is lost is in the report, not an error. Errors: not_found, refused (the destination is not
// empty), corrupt (nothing at all could be restored; the destination is not made), disk_full,
// newer_format, interrupted, deadline.
Result<SalvageReport> salvage(Context& context, const std::string& store_path,
                              const SalvageOptions& options);

}  // namespace ff::checkpoint

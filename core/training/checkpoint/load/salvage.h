// Salvage restores the intact parts of a damaged checkpoint. It reads and checks every chunk first;
// then it writes a repaired index that refers only to intact data, and loads it.
//
// An intact file is restored under its own name. Of a damaged safetensors file, the intact tensors
// are restored into a new file of that name. A damaged file of another kind is left out. Tensors
// whose file line in the index is lost are restored into a file salvaged-line-N.safetensors.
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

struct LostItem {
  std::string file;    // empty: unknown
  std::string tensor;  // empty: the file itself
  std::string reason;
};

struct SalvageReport {
  StepName name;
  uint64_t files_whole = 0;         // intact; with directories and links
  uint64_t files_partial = 0;       // new files with the intact tensors of damaged ones
  uint64_t tensors = 0;             // in both
  uint64_t bytes = 0;               // written
  std::vector<LostItem> lost;       // the first kLostShown
  uint64_t lost_count = 0;          // 0: nothing is damaged
  bool store_file_damaged = false;  // ff-store.json, which salvage does not need
  int64_t elapsed_ns = 0;
};

// Lost data is in the report, not an error. Errors: not_found, refused (the destination is not
// empty), corrupt (nothing at all could be restored; the destination is not created), disk_full,
// newer_format, interrupted, deadline.
Result<SalvageReport> salvage(Context& context, const std::string& store_path,
                              const SalvageOptions& options);

}  // namespace ff::checkpoint

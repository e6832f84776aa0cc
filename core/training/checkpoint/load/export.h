// Exports the tensors of a checkpoint, of all its files and ranks, as one canonical safetensors
// file. Tensors that were split over ranks (save --split) are joined; copies of one tensor on
// several ranks become one. A checkpoint of one canonical file is exported byte for byte.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct ExportOptions {
  std::string name;                  // RUN[@STEP]
  std::string out;                   // path of the new file
  bool force = false;                // replace `out` when it exists
  std::vector<std::string> files;    // globs: only tensors of these files
  std::vector<std::string> tensors;  // globs: only these tensors
  std::optional<uint32_t> rank;      // only this rank's files
};

struct ExportReport {
  StepName name;
  uint64_t tensors = 0;
  uint64_t bytes = 0;         // of the new file
  uint64_t opaque_files = 0;  // without tensors that ff knows; not exported
  int64_t elapsed_ns = 0;
};

// Creates the complete file or none. Errors: not_found (also when no tensor
// matches), refused (`out` exists, or is no regular file), failed (files or ranks hold different
// tensors of one name), corrupt, disk_full, usage, interrupted, deadline.
Result<ExportReport> export_safetensors(Context& context, const std::string& store_path,
                                        const ExportOptions& options);

}  // namespace ff::checkpoint

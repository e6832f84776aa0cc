// Exporting: the tensors of a checkpoint, of all its files and ranks, as one canonical safetensors
// file. Tensors split over ranks (save --split) are put together; copies that ranks hold of one
// tensor become one. A checkpoint of one canonical file comes out byte for byte as it went in.
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
  uint64_t opaque_files = 0;  // have no tensors ff can see, and are not in it
  int64_t elapsed_ns = 0;
};

// The file appears whole, under its name, or not at all. Errors: not_found (also when no tensor is
// chosen), refused (`out` exists, or is no regular file), failed (files or ranks hold different
// tensors of one name), corrupt, disk_full, usage, interrupted, deadline.
Result<ExportReport> export_safetensors(Context& context, const std::string& store_path,
                                        const ExportOptions& options);

}  // namespace ff::checkpoint

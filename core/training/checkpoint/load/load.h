// Loads a checkpoint, the files of one rank, or selected tensors into files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/store.h"
#include "training/checkpoint/load/tensor_slice.h"

namespace ff::checkpoint {

struct LoadOptions {
  std::string name;                  // RUN[@STEP]
  std::string dest;                  // absent, or an empty directory
  std::optional<uint32_t> rank;      // only this rank's files
  std::vector<std::string> tensors;  // globs: only these tensors, in new safetensors files
  std::vector<SliceRange> slice;     // of each of them
  std::optional<uint32_t> reshard;   // split tensors for this many ranks instead
};

struct LoadReport {
  StepName name;
  uint64_t files = 0;
  uint64_t tensors = 0;
  uint64_t bytes = 0;
  int64_t elapsed_ns = 0;
  std::vector<std::string> warnings;
};

// Every byte is checked against its CRC32C; the destination is created complete or not at all.
// Whatever the store says and others do there, nothing outside the destination is written.
// Errors: not_found, refused (the destination is not empty), corrupt (naming tensor, file and
// chunk), disk_full, usage, interrupted, deadline.
Result<LoadReport> load(Context& context, const std::string& store_path,
                        const LoadOptions& options);

}  // namespace ff::checkpoint

// Reduces the contents of files: each rank reads its own file piece by piece; one rank or all ranks
// write the result. A rank reads a piece while the ranks reduce the piece before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/io/disk.h"
#include "training/collective/communicator.h"

namespace ff::collective {

// One array in a file, the same on all ranks.
struct FileArray {
  simd::DataType type = simd::DataType::f32;
  uint64_t offset = 0;  // bytes from the start of the data
  uint64_t count = 0;   // elements
};

struct FileReduction {
  std::string in;
  uint64_t data_offset = 0;  // bytes from the start of `in` to its data
  std::string out;           // empty: this rank writes no file. Either rank 0 alone or all write
  bool to_all = false;       // all ranks write
  bool replace = false;      // an existing `out`
  std::string header;        // of `out`, before its data
  std::vector<FileArray> arrays;
  simd::ReduceOp op = simd::ReduceOp::sum;
};

// `progress` counts the bytes of this rank's data. Errors: of the files (with their names) and of
// the communicator; after an error `out` is absent or unchanged.
Result<void> reduce_files(Communicator& ranks, io::Disk& disk, Rng& rng, Progress& progress,
                          const FileReduction& reduction);

}  // namespace ff::collective

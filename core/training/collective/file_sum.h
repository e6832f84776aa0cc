// Files reduced like arrays in memory: each rank reads its own, piece by piece, and one rank or all
// of them write what comes out. A piece is read while the one before it is reduced.
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

// One array of a file, the same on all ranks.
struct FileArray {
  simd::DataType type = simd::DataType::f32;
  uint64_t at = 0;     // bytes, from where the data begins
  uint64_t count = 0;  // elements
};

struct FileSum {
  std::string in;
  uint64_t in_data = 0;  // where its data begins
  std::string out;       // empty: this rank writes nothing; rank 0 and nobody else, or all write
  bool to_all = false;   // all ranks write
  bool replace = false;  // a file that is there already
  std::string head;      // what stands before the data in `out`
  std::vector<FileArray> arrays;
  simd::ReduceOp op = simd::ReduceOp::sum;
};

// `progress` counts the bytes of this rank's data. Errors: of the files (naming them), and of the
// communicator; `out` then is not there, or as it was.
Result<void> sum_files(Communicator& ranks, io::Disk& disk, Rng& rng, Progress& progress,
                       const FileSum& sum);

}  // namespace ff::collective

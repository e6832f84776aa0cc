// The work of `ff bench chunk`: one chunk store beside a file of the same size (disk_passes.h), and
// the opening of a disk with many chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/disk_passes.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop.h"
#include "platform/io/disk.h"

namespace ff::bench {

struct ChunkLoad {
  std::string dir;  // an empty folder; what is made in it the caller removes
  PassLoad passes;
  bool store_first = false;
};

struct ChunkFigures {
  Speed raw;
  Speed store;          // each chunk stored as pending, then committed
  bool direct = false;  // false: the file system has no direct I/O, memory was measured too
};

// Errors: disk_full, refused, interrupted, I/O.
Result<ChunkFigures> run_chunk_load(io::Disk& disk, const Stop& stop, Progress& progress, Rng& rng,
                                    const ChunkLoad& load);

struct OpenFigures {
  double seconds = 0;
  uint64_t metadata_bytes = 0;
};

// Opens a disk in the empty folder `dir` that holds `chunks` chunks of 1 MiB: their metadata, and
// files with holes for their blocks.
Result<OpenFigures> run_open(io::Disk& disk, const Stop& stop, Rng& rng, const std::string& dir,
                             uint64_t chunks);

}  // namespace ff::bench

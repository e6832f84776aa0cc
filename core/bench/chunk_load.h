// The work of `ff bench chunk`: one chunk store and, beside it, a file of the same size, moved by
// the same loop at the same depth. And the opening of a disk with many chunks.
//
// Both write into space that is freshly reserved, and end with a sync; new blocks cost a device
// more than old ones, so each round begins anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/stop.h"
#include "io/disk.h"

namespace ff::bench {

struct ChunkLoad {
  std::string dir;            // an empty folder; what is made in it the caller removes
  uint64_t bytes = 0;         // of the store and of the file; whole chunks
  unsigned depth = 8;         // of whole chunks
  unsigned small_depth = 64;  // of small reads
  uint64_t small_reads = 0;
  bool store_first = false;
};

// Bytes a second; a small read is 4 KiB.
struct ChunkSpeed {
  double write = 0;  // each chunk stored as pending, then committed; all synced at the end
  double read = 0;   // whole chunks
  double small_read = 0;
};

struct ChunkFigures {
  ChunkSpeed raw;
  ChunkSpeed store;
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

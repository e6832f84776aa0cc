// The load of `ff bench chunk`: one chunk store, compared with a file of the same size
// (disk_passes.h), and the time to open a disk with many chunks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/bench/disk_passes.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::bench {

struct ChunkLoad {
  std::string dir;  // an empty directory; the caller removes the files
  PassLoad passes;
  bool store_first = false;
};

struct ChunkBenchResult {
  Throughput raw;
  Throughput store;     // each chunk stored as pending, then committed
  bool direct = false;  // false: no direct I/O, so the page cache was measured too
};

// Errors: disk_full, refused, interrupted, I/O.
Result<ChunkBenchResult> run_chunk_load(io::Disk& disk, const StopToken& stop, Progress& progress,
                                        Rng& rng, const ChunkLoad& load);

struct OpenResult {
  double seconds = 0;
  uint64_t metadata_bytes = 0;
  uint64_t memory_bytes = 0;  // of the open store
};

// Opens a disk in the empty directory `dir` with the metadata of `chunks` chunks of 64 KiB and
// sparse block files.
Result<OpenResult> measure_open(io::Disk& disk, const StopToken& stop, Rng& rng,
                                const std::string& dir, uint64_t chunks);

}  // namespace ff::bench

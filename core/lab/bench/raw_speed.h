// The raw throughput of a disk as a baseline: sequential direct I/O on one file, 1 MiB blocks, 8 in
// flight (equal to fio with the same job).
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/progress.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::bench {

struct RawSpeed {
  double write = 0;  // bytes per second, including the final sync
  double read = 0;
  double both = 0;      // a reader and a writer concurrently: the slower of the two
  bool direct = false;  // false: no direct I/O, so the page cache was measured too
};

struct RawSpeedOptions {
  std::string dir;     // directory of the temporary files
  uint64_t bytes = 0;  // size of each of two files; rounded up to whole blocks
  std::string name;    // unique name of the files
};

// Errors: disk_full, refused, interrupted, deadline, I/O. The files are removed in any case.
Result<RawSpeed> measure_raw_speed(io::Disk& disk, const StopToken& stop, Progress& progress,
                                   const RawSpeedOptions& options);

}  // namespace ff::bench

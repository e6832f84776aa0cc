// The raw speed of a disk, as a yardstick for everything built on it: sequential direct I/O of one
// file, 1 MiB blocks, 8 in flight (the figures fio prints for the same job).
#pragma once

#include <cstdint>
#include <string>

#include "platform/base/progress.h"
#include "platform/base/stop.h"
#include "platform/io/disk.h"

namespace ff::bench {

struct RawSpeed {
  double write = 0;  // bytes a second, the final sync included
  double read = 0;
  double both = 0;      // one reader and one writer at once: the slower of the two
  bool direct = false;  // false: the file system has no direct I/O, memory was measured too
};

struct RawSpeedOptions {
  std::string dir;     // files are made here and removed
  uint64_t bytes = 0;  // of each of two files; rounded up to whole blocks
  std::string name;    // of the files, made unique by the caller
};

// Errors: disk_full, refused, interrupted, deadline, I/O. The files are removed in any case.
Result<RawSpeed> measure_raw_speed(io::Disk& disk, const Stop& stop, Progress& progress,
                                   const RawSpeedOptions& options);

}  // namespace ff::bench

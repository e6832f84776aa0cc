// The load of `ff bench files`, as mdtest and IO500's mdtest phases are: processes that create,
// stat, rename, write, read and remove small files in a directory, through the kernel. It measures
// whatever file system the directory is on, so that an operator compares them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/stop_token.h"

namespace ff::bench {

struct SmallFilesLoad {
  unsigned processes = 1;
  uint64_t files = 2000;         // of each process
  uint64_t bytes = 8192;         // of each file that is written and read
  bool own_directories = false;  // each process in a directory of its own; else all in one
};
constexpr unsigned kFilesProcessesMax = 256;
constexpr uint64_t kFilesMax = 16'000'000;  // of all processes together
constexpr uint64_t kFileBytesMax = 64 << 20;

struct FilesPhase {
  std::string name;  // create, stat, rename, remove, write, read
  uint64_t operations = 0;
  double seconds = 0;  // from the start of the first process to the end of the last
  double p50_seconds = 0;
  double p99_seconds = 0;
  double cpu_seconds = 0;  // of the whole machine, per operation (io/cpu_use.h)
  double per_second() const { return seconds > 0 ? static_cast<double>(operations) / seconds : 0; }
};

// Operations of all phases together, for progress.
uint64_t files_operations(const SmallFilesLoad& load);

// Runs all phases in `dir`, which must be empty; leaves nothing in it unless it fails. A phase
// begins when all processes have ended the one before. Errors: the first of any process, with the
// name of its file; those of `stop`.
Result<std::vector<FilesPhase>> run_files_load(const StopToken& stop, Progress& progress,
                                               const std::string& dir, const SmallFilesLoad& load);

}  // namespace ff::bench

// The load of `ff bench meta`: what mdtest does (a tree of directories, files in its leaves; make,
// look at, list, rename, remove), through the file system's own client. Phases come one after the
// other, each with a number of calls in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/stop.h"
#include "platform/base/task.h"
#include "storage/meta/meta_client.h"

namespace ff::bench {

struct MetaLoad {
  uint64_t files = 0;      // in all
  unsigned depth = 0;      // of the tree below the folder; 0: all files in one directory
  unsigned width = 1;      // directories in each directory of the tree
  unsigned in_flight = 1;  // over all clients
};
// Directories of the tree that hold files, at most.
constexpr uint64_t kLeavesMax = 1'000'000;
uint64_t leaves_of(const MetaLoad& load);

struct MetaFigures {
  std::string phase;
  uint64_t operations = 0;
  double seconds = 0;
  double p50_seconds = 0;
  double p99_seconds = 0;
  double per_second() const { return seconds > 0 ? static_cast<double>(operations) / seconds : 0; }
};

// Works in a new folder `name` of the root directory, which is removed at the end, also after an
// error. Clients take turns. The first error of any operation; those of `stop`.
Task<Result<std::vector<MetaFigures>>> run_meta_load(
    Loop& loop, const Stop& stop, const std::vector<std::unique_ptr<meta::MetaClient>>& clients,
    meta::Caller caller, std::string name, MetaLoad load);

}  // namespace ff::bench

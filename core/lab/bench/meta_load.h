// The load of `ff bench meta`, similar to mdtest: a tree of directories with files in its leaves;
// create, stat, list, rename and remove through the metadata client. Phases run one after the
// other, each with a number of calls in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "platform/base/stop_token.h"
#include "platform/base/task.h"
#include "storage/meta/meta_client.h"

namespace ff::bench {

struct MetaLoad {
  uint64_t files = 0;      // total number of files
  unsigned depth = 0;      // depth of the tree; 0: all files in one directory
  unsigned width = 1;      // subdirectories per directory of the tree
  unsigned in_flight = 1;  // calls in flight of all clients
};
// Maximum number of leaf directories.
constexpr uint64_t kLeavesMax = 1'000'000;
uint64_t leaves_of(const MetaLoad& load);

struct MetaPhaseResult {
  std::string phase;
  uint64_t operations = 0;
  double seconds = 0;
  double p50_seconds = 0;
  double p99_seconds = 0;
  double cpu_seconds = 0;  // of the whole machine, per operation (io/cpu_use.h)
  double per_second() const { return seconds > 0 ? static_cast<double>(operations) / seconds : 0; }
};

// Works in a new directory `name` of the root, and removes it at the end, also after an error.
// Calls are distributed round-robin over the clients. Errors: the first of any operation, those of
// `stop`.
Task<Result<std::vector<MetaPhaseResult>>> run_meta_load(
    Loop& loop, const StopToken& stop,
    const std::vector<std::unique_ptr<meta::MetaClient>>& clients, meta::Caller caller,
    std::string name, MetaLoad load);

}  // namespace ff::bench

// Prune: gives back what no checkpoint uses any more, beside running saves and loads (the rules
// are in lease.h).
//
//   1. read all indexes and shards; a damaged one ends it, for what it names cannot be known
//   2. take overdue leases and abandoned attempts away
//   3. move chunks that nothing names, and that are older than the grace, to the trash
//   4. read the leases, then all indexes again; take back from the trash what they name
//   5. when no lease of 4 is left: delete the rest of the trash; else leave it for the next time
//
// A kill at any point leaves chunks in the trash, where readers and savers find them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "platform/base/clock.h"
#include "training/checkpoint/format/context.h"
#include "training/checkpoint/format/lease.h"
#include "training/checkpoint/format/store.h"

namespace ff::checkpoint {

struct PruneOptions {
  // Younger chunks and attempts stay. Safety does not depend on it: it spares the next try of a
  // save that failed from writing its chunks again.
  int64_t grace_ns = 3600 * kSecond;
  int64_t wait_ns = 0;   // how long to wait for running leases to end
  bool dry_run = false;  // only count; takes no lock
};

// Ranks that saved and never became a checkpoint.
struct AbandonedAttempt {
  StepName name;
  std::string attempt;
  uint32_t world = 0;
  std::vector<uint32_t> present;
};

struct PruneReport {
  uint64_t chunks_deleted = 0;  // in a dry run: that would be
  uint64_t bytes_deleted = 0;   // of chunk files
  uint64_t chunks_waiting = 0;  // left in the trash, for `running` may use them
  uint64_t bytes_waiting = 0;
  uint64_t chunks_spared = 0;  // used by nothing, but younger than the grace
  uint64_t bytes_spared = 0;
  uint64_t chunks_restored = 0;  // taken back from the trash
  uint64_t leftovers = 0;        // unfinished files and folders of ended actions
  std::vector<LeaseInfo> running;
  std::vector<LeaseInfo> overdue;  // leases taken away
  std::vector<AbandonedAttempt> abandoned;
  int64_t elapsed_ns = 0;
};

// Errors: refused (another prune runs; a read-only store), corrupt (a damaged index: nothing was
// deleted), newer_format, interrupted, deadline.
Result<PruneReport> prune(Context& context, const std::string& store_path,
                          const PruneOptions& options);

}  // namespace ff::checkpoint

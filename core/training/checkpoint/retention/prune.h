// Prune deletes chunks that no checkpoint uses, while saves and loads may run (rules: lease.h).
//
//   1. read all indexes and shards; a damaged one ends the prune: its chunks are unknown
//   2. remove overdue leases and abandoned attempts
//   3. move unused chunks that are older than the grace period to the trash
//   4. list the leases, then read all indexes again; restore chunks that they name from the trash
//   5. when no lease of step 4 is left: delete the trash; else leave it for the next prune
//
// Ages are by the store's clock. A time far in its future is set to now, and its age begins then.
//
// After a kill at any point readers and savers find the chunks in the trash.
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
  // Younger chunks and attempts stay. Safety does not depend on it: it only saves the next attempt
  // of a failed save from writing its chunks again.
  int64_t grace_ns = 3600 * kSecond;
  int64_t wait_ns = 0;   // how long to wait for running leases to end
  bool dry_run = false;  // only count; without lock
};

// Shards of ranks that never became a checkpoint.
struct AbandonedAttempt {
  StepName name;
  std::string attempt;
  uint32_t world = 0;
  std::vector<uint32_t> present;
};

// A lease with a time far in the future of the store's clock, which was set back, or a program has
// set that time.
struct FutureLease {
  LeaseInfo lease;
  bool corrected = false;  // its time is now, so it ends or becomes overdue like any other
};

struct PruneReport {
  uint64_t chunks_deleted = 0;   // in a dry run: that would be
  uint64_t bytes_deleted = 0;    // of chunk files
  uint64_t chunks_deferred = 0;  // left in the trash, because `running` may use them
  uint64_t bytes_deferred = 0;
  uint64_t chunks_recent = 0;  // unused, but younger than the grace period
  uint64_t bytes_recent = 0;
  uint64_t chunks_restored = 0;  // from the trash
  uint64_t leftovers = 0;        // unfinished files and folders of ended actions
  std::vector<LeaseInfo> running;
  std::vector<LeaseInfo> overdue;  // leases that were removed
  std::vector<FutureLease> ahead;
  std::vector<AbandonedAttempt> abandoned;
  int64_t elapsed_ns = 0;
};

// Errors: refused (another prune runs; a read-only store), corrupt (a damaged index: nothing was
// deleted), newer_format, interrupted, deadline.
Result<PruneReport> prune(Context& context, const std::string& store_path,
                          const PruneOptions& options);

}  // namespace ff::checkpoint

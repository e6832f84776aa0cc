// What every checkpoint action is given: the seams it works through, how to stop it, and where it
// reports bytes for a progress bar.
#pragma once

#include <atomic>
#include <functional>

#include "platform/base/clock.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop.h"
#include "platform/io/disk.h"

namespace ff::checkpoint {

struct Context {
  io::Disk& disk;
  Clock& clock;
  Rng& rng;
  const Stop& stop;
  Progress& progress;
  unsigned threads = 2;  // workers of bulk actions; 1 runs on the caller's thread (simulation)
};

// Runs body(0) .. body(count - 1) on `count` threads (count 1: on this one) and returns the first
// error. Once one has failed, `failed` is set and the others are expected to look at it and end.
Result<void> run_workers(unsigned count, std::atomic<bool>& failed,
                         const std::function<Result<void>(unsigned)>& body);

}  // namespace ff::checkpoint

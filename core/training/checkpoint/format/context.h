// The context of every checkpoint action: its seams (disk, clock, random numbers), how to stop it,
// and the counter of a progress bar.
#pragma once

#include <atomic>
#include <functional>

#include "platform/base/clock.h"
#include "platform/base/progress.h"
#include "platform/base/result.h"
#include "platform/base/rng.h"
#include "platform/base/stop_token.h"
#include "platform/io/disk.h"

namespace ff::checkpoint {

struct Context {
  io::Disk& disk;
  Clock& clock;
  Rng& rng;
  const StopToken& stop;
  Progress& progress;
  unsigned threads = 2;  // workers of bulk actions; 1 runs on the caller's thread (simulation)
};

// Runs body(0) .. body(count - 1) on `count` threads (count 1: on this one) and returns the first
// error. When one fails, `failed` is set, and the other bodies must check it and return.
Result<void> run_workers(unsigned count, std::atomic<bool>& failed,
                         const std::function<Result<void>(unsigned)>& body);

}  // namespace ff::checkpoint

// The pauses between the attempts of one transaction that meets others.
#pragma once

#include <cstdint>

#include "base/loop.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/task.h"

namespace ff::kv {

class Backoff {
 public:
  Backoff(Loop& loop, Rng& rng, int64_t deadline_ns)
      : loop_(loop), rng_(rng), deadline_ns_(deadline_ns) {}
  // Waits twice as long as the last time, jittered. Errc::deadline once that would be too late.
  Task<Result<void>> pause();

 private:
  Loop& loop_;
  Rng& rng_;
  const int64_t deadline_ns_;
  int attempts_ = 0;
};

}  // namespace ff::kv

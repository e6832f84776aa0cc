// Exponential backoff with jitter: the delay before a retry doubles up to a limit, and each delay
// is random between half and all of it, so that clients that failed together do not retry together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/base/rng.h"

namespace ff {

class Backoff {
 public:
  Backoff(Rng& rng, int64_t initial_ns, int64_t max_ns)
      : rng_(rng), initial_ns_(initial_ns), max_ns_(max_ns), next_ns_(initial_ns) {}

  // The delay before the next attempt.
  int64_t next_delay_ns() {
    const auto half = static_cast<uint64_t>(next_ns_ / 2);
    next_ns_ = std::min(2 * next_ns_, max_ns_);
    return static_cast<int64_t>(half + rng_.below(half + 1));
  }
  // After a success: the next failure starts again with the initial delay.
  void reset() { next_ns_ = initial_ns_; }

 private:
  Rng& rng_;
  const int64_t initial_ns_;
  const int64_t max_ns_;
  int64_t next_ns_;
};

}  // namespace ff

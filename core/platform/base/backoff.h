// How long to wait before something is tried again: twice as long each time up to a limit, anywhere
// between half and all of it, so that those who failed together do not come back together.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/base/rng.h"

namespace ff {

class Backoff {
 public:
  Backoff(Rng& rng, int64_t first_ns, int64_t last_ns)
      : rng_(rng), first_ns_(first_ns), last_ns_(last_ns), next_ns_(first_ns) {}

  // The next pause.
  int64_t pause_ns() {
    const auto half = static_cast<uint64_t>(next_ns_ / 2);
    next_ns_ = std::min(2 * next_ns_, last_ns_);
    return static_cast<int64_t>(half + rng_.below(half + 1));
  }
  // It has worked: the next failure begins with the first pause.
  void reset() { next_ns_ = first_ns_; }

 private:
  Rng& rng_;
  const int64_t first_ns_;
  const int64_t last_ns_;
  int64_t next_ns_;
};

}  // namespace ff

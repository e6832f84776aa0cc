// Rate limiter for copies and scrubs, so that they leave the disks to foreground requests: each
// caller waits until the bytes acquired before it have had their time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/base/clock.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::chain {

class RateLimiter {
 public:
  // Bytes per second; 0: no limit.
  explicit RateLimiter(Loop& loop, uint64_t rate = 0) : loop_(loop), rate_(rate) {}

  uint64_t rate() const { return rate_; }
  void set_rate(uint64_t rate) { rate_ = rate; }
  Task<Result<void>> acquire(uint64_t bytes) {
    if (rate_ == 0) co_return Result<void>();
    const int64_t at_ns = std::max(free_ns_, loop_.now_ns());
    free_ns_ = at_ns + static_cast<int64_t>(static_cast<double>(bytes) * kSecond /
                                            static_cast<double>(rate_));
    co_return co_await sleep_until(loop_, at_ns);
  }

 private:
  Loop& loop_;
  uint64_t rate_;
  int64_t free_ns_ = 0;  // time at which all acquired bytes are paid for
};

}  // namespace ff::chain

// How fast bytes may go: who takes some waits until those that others took before have had their
// time. For copies and scrubs, which must leave the disks to those who wait for them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "platform/base/clock.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::chain {

class Pace {
 public:
  // Bytes a second; 0: no limit.
  explicit Pace(Loop& loop, uint64_t rate = 0) : loop_(loop), rate_(rate) {}

  uint64_t rate() const { return rate_; }
  void set_rate(uint64_t rate) { rate_ = rate; }
  Task<Result<void>> take(uint64_t bytes) {
    if (rate_ == 0) co_return Result<void>();
    const int64_t at_ns = std::max(free_ns_, loop_.now_ns());
    free_ns_ = at_ns + static_cast<int64_t>(static_cast<double>(bytes) * kSecond /
                                            static_cast<double>(rate_));
    co_return co_await until(loop_, at_ns);
  }

 private:
  Loop& loop_;
  uint64_t rate_;
  int64_t free_ns_ = 0;  // when all that was taken has had its time
};

}  // namespace ff::chain

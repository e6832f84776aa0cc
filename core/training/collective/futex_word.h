// A word in memory that processes share, on which their threads sleep (futex(2)) until a condition
// holds. Zeroed memory is a valid word.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "platform/base/clock.h"

namespace ff::collective {

constexpr int kAllWaiters = INT32_MAX;

class FutexWord {
 public:
  // Returns true once `until` holds, false at that steady time. Checks both after each wake().
  bool wait(Clock& clock, int64_t until_ns, const std::function<bool()>& until);
  // After a change that a waiter may wait for.
  void wake(int waiters = kAllWaiters);
  uint32_t load() const { return word_.load(std::memory_order_acquire); }  // how many wake()s

 private:
  std::atomic<uint32_t> word_;
};

}  // namespace ff::collective

// grant_scheduler.cc: the oldest waiting call gets the next grant.
#include "platform/rpc/grant_scheduler.h"

#include <algorithm>

namespace ff::rpc {

bool GrantScheduler::try_acquire() {
  if (!limited_) return true;
  if (free_ == 0) return false;  // always true while a call waits
  free_--;
  return true;
}

void GrantScheduler::wait(int64_t started_ns, Waiter& waiter) {
  waiting_.insert({started_ns, arrivals_++, &waiter});
  grant_next();
}

void GrantScheduler::cancel(Waiter& waiter) {
  std::erase_if(waiting_, [&waiter](const QueueEntry& entry) { return entry.waiter == &waiter; });
}

void GrantScheduler::release() {
  if (!limited_) return;
  free_++;
  grant_next();
}

void GrantScheduler::grant_next() {
  while ((free_ > 0 || !limited_) && !waiting_.empty()) {
    Waiter& next = *waiting_.begin()->waiter;
    waiting_.erase(waiting_.begin());
    if (limited_) free_--;
    next.granted();
  }
}

}  // namespace ff::rpc

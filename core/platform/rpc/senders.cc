// senders.cc: slots go to the oldest call that waits.
#include "platform/rpc/senders.h"

#include <algorithm>

namespace ff::rpc {

bool Senders::try_take() {
  if (!limited_) return true;
  if (free_ == 0) return false;  // as always while somebody waits
  free_--;
  return true;
}

void Senders::wait(int64_t started_ns, Waiter& waiter) {
  waiting_.insert({started_ns, arrivals_++, &waiter});
  serve();
}

void Senders::leave(Waiter& waiter) {
  std::erase_if(waiting_, [&waiter](const Place& place) { return place.waiter == &waiter; });
}

void Senders::give() {
  if (!limited_) return;
  free_++;
  serve();
}

void Senders::serve() {
  while ((free_ > 0 || !limited_) && !waiting_.empty()) {
    Waiter& next = *waiting_.begin()->waiter;
    waiting_.erase(waiting_.begin());
    if (limited_) free_--;
    next.granted();
  }
}

}  // namespace ff::rpc

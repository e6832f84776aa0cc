// key_locks.cc: one queue for each key that is in use.
#include "storage/gateway/key_locks.h"

#include <algorithm>
#include <utility>

namespace ff::gateway {

KeyLocks::KeyLock::KeyLock(KeyLocks& locks, std::vector<std::string> keys, bool exclusive)
    : locks_(locks), keys_(std::move(keys)), exclusive_(exclusive), held_(locks.loop_) {
  if (keys_.size() > 1) {
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  }
  waits_for_ = keys_.size();
  for (const std::string& key : keys_) {
    Queue& queue = locks_.queues_[key];
    queue.requests.push_back(this);
    grant(queue);
  }
}

KeyLocks::KeyLock::~KeyLock() {
  for (const std::string& key : keys_) {
    const auto found = locks_.queues_.find(key);
    Queue& queue = found->second;
    const auto own = std::find(queue.requests.begin(), queue.requests.end(), this);
    const auto index = static_cast<size_t>(own - queue.requests.begin());
    if (index < queue.granted) queue.granted--;
    queue.requests.erase(own);
    if (queue.requests.empty()) {
      locks_.queues_.erase(found);
    } else {
      grant(queue);
    }
  }
}

Task<Result<void>> KeyLocks::KeyLock::wait() {
  if (is_held()) co_return Result<void>();
  co_return co_await held_.wait();
}

// The first request holds the key; so do the next ones as long as all are shared.
void KeyLocks::grant(Queue& queue) {
  while (queue.granted < queue.requests.size()) {
    KeyLock& next = *queue.requests[queue.granted];
    const bool fits =
        queue.granted == 0 || (!next.exclusive_ && !queue.requests.front()->exclusive_);
    if (!fits) return;
    queue.granted++;
    if (--next.waits_for_ == 0) next.held_.set();
  }
}

}  // namespace ff::gateway

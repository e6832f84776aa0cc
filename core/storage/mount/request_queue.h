// Requests that another thread hands to a loop. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "platform/base/loop.h"
#include "storage/mount/fuse_request.h"

namespace ff::mount {

class RequestQueue : public std::enable_shared_from_this<RequestQueue> {
 public:
  using Take = std::function<void(std::vector<FuseRequest>)>;
  // `take` gets requests on the loop, which outlives the queue.
  RequestQueue(Loop& loop, Take take) : loop_(loop), take_(std::move(take)) {}

  // Wakes the loop once for all requests that it has not taken yet.
  void push(FuseRequest request) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = waiting_.empty();
      waiting_.push_back(std::move(request));
    }
    if (first) loop_.post([queue = shared_from_this()] { queue->take_all(); });
  }
  // On the loop: what was pushed so far.
  void take_all() {
    std::vector<FuseRequest> taken;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(waiting_);
    }
    if (take_ && !taken.empty()) take_(std::move(taken));
  }
  // On the loop: requests that arrive from now on are dropped.
  void close() { take_ = nullptr; }

 private:
  Loop& loop_;
  Take take_;  // on the loop
  std::mutex mutex_;
  std::vector<FuseRequest> waiting_;
};

}  // namespace ff::mount

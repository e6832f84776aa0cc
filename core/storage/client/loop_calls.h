// Tasks of a loop that runs in another thread: any thread starts them here, and waits for them.
#pragma once

#include <functional>
#include <future>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::client {

class LoopCalls {
 public:
  // The loop outlives it.
  explicit LoopCalls(Loop& loop) : loop_(loop), gate_(loop) {}

  Loop& loop() const { return loop_; }

  // Runs the task that `make` returns, and returns its result. Not from the loop's own thread,
  // which must be running it. `make` is called there.
  template <class T>
  Result<T> call(const std::function<Task<Result<T>>()>& make) {
    std::promise<Result<T>> promise;
    auto result = promise.get_future();
    // Shared, since a function that is posted can be copied.
    auto shared = std::make_shared<std::promise<Result<T>>>(std::move(promise));
    loop_.post([this, &make, shared] { gate_.spawn(keep(make(), shared)); });
    return result.get();
  }

  // Runs it without waiting.
  void start(std::function<Task<void>()> make) {
    loop_.post([this, make = std::move(make)] { gate_.spawn(make()); });
  }

  // Waits until all have ended. In the loop; nothing is started any more.
  Task<void> close() { return gate_.wait_empty(); }

 private:
  template <class T>
  static Task<void> keep(Task<Result<T>> task, std::shared_ptr<std::promise<Result<T>>> promise) {
    promise->set_value(co_await std::move(task));
  }

  Loop& loop_;
  Gate gate_;
};

}  // namespace ff::client

// Runs tasks on a loop that another thread runs; any thread may start them and wait for the result.
#pragma once

#include <functional>
#include <future>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/result.h"
#include "platform/base/task.h"

namespace ff::client {

class LoopExecutor {
 public:
  // The loop outlives it.
  explicit LoopExecutor(Loop& loop) : loop_(loop), gate_(loop) {}

  Loop& loop() const { return loop_; }

  // Runs the task that `make` returns on the loop and waits for its result. `make` is called on the
  // loop. Do not call it from the thread of the loop.
  template <class T>
  Result<T> call(const std::function<Task<Result<T>>()>& make) {
    std::promise<Result<T>> promise;
    auto result = promise.get_future();
    // Shared, since a posted function must be copyable.
    auto shared = std::make_shared<std::promise<Result<T>>>(std::move(promise));
    loop_.post([this, &make, shared] { gate_.spawn(keep(make(), shared)); });
    return result.get();
  }

  // Starts the task without waiting for it.
  void start(std::function<Task<void>()> make) {
    loop_.post([this, make = std::move(make)] { gate_.spawn(make()); });
  }

  // On the loop: waits until all tasks have ended. Start nothing after this.
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

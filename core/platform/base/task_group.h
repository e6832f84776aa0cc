// TaskGroup: runs several tasks concurrently and returns the first error (compare errgroup of Go).
#pragma once

#include <utility>

#include "platform/base/gate.h"
#include "platform/base/result.h"

namespace ff {

class TaskGroup {
 public:
  explicit TaskGroup(Loop& loop) : gate_(loop) {}

  // Starts `task`. It does not inherit the caller's cancellation: wrap it with
  // Task::with_cancellation() where it should.
  void add(Task<Result<void>> task) { gate_.spawn(keep(std::move(task), first_)); }
  // Whether no task has failed so far.
  bool ok() const { return first_.ok(); }
  // Waits for all tasks; returns the first error. The wait itself ignores cancellation.
  Task<Result<void>> join() {
    co_await gate_.wait_empty();
    co_return std::move(first_);
  }

 private:
  static Task<void> keep(Task<Result<void>> task, Result<void>& first) {
    auto done = co_await std::move(task);
    if (!done && first) first = std::move(done);
  }

  Result<void> first_;
  Gate gate_;
};

}  // namespace ff

// Several tasks at once that are one piece of work: its error is the first of theirs.
#pragma once

#include <utility>

#include "platform/base/gate.h"
#include "platform/base/result.h"

namespace ff {

class Together {
 public:
  explicit Together(Loop& loop) : gate_(loop) {}

  // Starts it. With the caller's cancellation, if it shall have one: Task::under().
  void add(Task<Result<void>> task) { gate_.spawn(keep(std::move(task), first_)); }
  // All have gone well so far.
  bool ok() const { return first_.ok(); }
  // Waits for all of them, and cannot be cancelled itself.
  Task<Result<void>> done() {
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

// Gate: owns background tasks (compare seastar::gate). Every task that is not awaited is spawned
// through a gate. Closing the gate cancels its tasks and waits for them; destroying it destroys
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/cancellation.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff {

class Gate {
 public:
  explicit Gate(Loop& loop);
  // Destroys the suspended tasks that are left. Must not be called from inside one of them.
  ~Gate();

  Loop& loop() const { return loop_; }
  CancellationToken& cancellation() { return cancel_; }
  size_t running() const { return running_; }
  // The loop starts `task` soon. After close() its first wait ends with the cancellation.
  void spawn(Task<void> task);
  // Waits until no task is left. The wait itself ignores cancellation.
  Task<void> wait_empty();
  // Cancels all tasks with `reason` and waits for them.
  Task<void> close(Error reason);

 private:
  struct Root;
  static Root run(Gate& gate, Task<void> task);
  void on_task_end();

  Loop& loop_;
  CancellationToken cancel_;
  size_t running_ = 0;
  Event empty_;
  struct RootPromise;
  IntrusiveList<RootPromise> roots_;
};

// co_await current_cancellation() returns the token of the awaiting task; null when it has none.
struct current_cancellation {
  CancellationToken* cancel = nullptr;
  bool await_ready() const { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> task) {
    cancel = task.promise().cancel;
    return false;
  }
  CancellationToken* await_resume() const { return cancel; }
};

// A child token: cancelled when its parent is, or at a deadline (compare CancelScope of Trio).
class CancelScope final : private CancellationToken::Hook, private Runnable {
 public:
  // `parent` may be null. `what` is the message of the deadline error and must outlive the scope.
  CancelScope(Loop& loop, CancellationToken* parent, int64_t deadline_ns, std::string_view what);

  CancellationToken& cancellation() { return cancel_; }

 private:
  void on_cancel() override { cancel_.request(parent_->reason()); }
  void on_wake() override;

  CancellationToken* parent_;
  CancellationToken cancel_;
  std::string_view what_;
  Timer timer_;
};

// Awaits `task` and cancels it at `deadline_ns` with Errc::deadline and the message `what`.
// INT64_MAX means no deadline.
template <class T>
Task<Result<T>> with_deadline(Loop& loop, int64_t deadline_ns, std::string what,
                              Task<Result<T>> task) {
  CancellationToken* const parent = co_await current_cancellation();
  CancelScope scope(loop, parent, deadline_ns, what);
  co_return co_await std::move(task).with_cancellation(scope.cancellation());
}

namespace gate_detail {

template <class T>
Task<void> run_and_stop(Task<T> task, std::optional<T>& result, Loop& loop) {
  result.emplace(co_await std::move(task));
  loop.stop();
}

inline Task<void> run_and_stop(Task<void> task, Loop& loop) {
  co_await std::move(task);
  loop.stop();
}

}  // namespace gate_detail

// Runs the loop until `task` has ended; for main() and tests.
template <class T>
T run_task(Loop& loop, Task<T> task) {
  std::optional<T> result;
  Gate gate(loop);
  gate.spawn(gate_detail::run_and_stop(std::move(task), result, loop));
  loop.run();
  return std::move(*result);
}
inline void run_task(Loop& loop, Task<void> task) {
  Gate gate(loop);
  gate.spawn(gate_detail::run_and_stop(std::move(task), loop));
  loop.run();
}

}  // namespace ff

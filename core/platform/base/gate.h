// Gate: who has started tasks and must see them end. Every task that nobody awaits is spawned
// through one; closing a gate cancels its tasks and waits for them, destroying it destroys them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "platform/base/cancel.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff {

class Gate {
 public:
  explicit Gate(Loop& loop);
  // Destroys the tasks that are left, where they stand. Not from inside one of them.
  ~Gate();

  Loop& loop() const { return loop_; }
  Cancel& cancel() { return cancel_; }
  size_t running() const { return running_; }
  // Starts `task` from the loop. After close() it is cancelled at its first wait.
  void spawn(Task<void> task);
  // Waits, and cannot be cancelled itself, until no task is left.
  Task<void> wait_empty();
  // Cancels all tasks with `reason`, and waits for them.
  Task<void> close(Error reason);

 private:
  struct Root;
  static Root run(Gate& gate, Task<void> task);
  void ended();

  Loop& loop_;
  Cancel cancel_;
  size_t running_ = 0;
  Event empty_;
  struct RootPromise;
  IntrusiveList<RootPromise> roots_;
};

// The Cancel of the task that awaits this; null when it has none.
struct current_cancel {
  Cancel* cancel = nullptr;
  bool await_ready() const { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> task) {
    cancel = task.promise().cancel;
    return false;
  }
  Cancel* await_resume() const { return cancel; }
};

// A Cancel that also fires when another one does, and at a time.
class CancelScope final : private Cancel::Hook, private Ready {
 public:
  // `parent` may be null; what: the message of the deadline's error, which must outlive the scope.
  CancelScope(Loop& loop, Cancel* parent, int64_t deadline_ns, std::string_view what);

  Cancel& cancel() { return cancel_; }

 private:
  void on_cancel() override { cancel_.request(parent_->reason()); }
  void fire() override;

  Cancel* parent_;
  Cancel cancel_;
  std::string_view what_;
  Timer timer_;
};

// Awaits `task`; at `deadline_ns` it is cancelled with Errc::deadline and the message `what`.
// INT64_MAX: no deadline.
template <class T>
Task<Result<T>> with_deadline(Loop& loop, int64_t deadline_ns, std::string what,
                              Task<Result<T>> task) {
  Cancel* const parent = co_await current_cancel();
  CancelScope scope(loop, parent, deadline_ns, what);
  co_return co_await std::move(task).under(scope.cancel());
}

namespace gate_detail {

template <class T>
Task<void> keep(Task<T> task, std::optional<T>& result, Loop& loop) {
  result.emplace(co_await std::move(task));
  loop.stop();
}

inline Task<void> keep(Task<void> task, Loop& loop) {
  co_await std::move(task);
  loop.stop();
}

}  // namespace gate_detail

// Runs the loop until `task` has ended; for main() and tests.
template <class T>
T run_task(Loop& loop, Task<T> task) {
  std::optional<T> result;
  Gate gate(loop);
  gate.spawn(gate_detail::keep(std::move(task), result, loop));
  loop.run();
  return std::move(*result);
}
inline void run_task(Loop& loop, Task<void> task) {
  Gate gate(loop);
  gate.spawn(gate_detail::keep(std::move(task), loop));
  loop.run();
}

}  // namespace ff

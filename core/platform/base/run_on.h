// run_on(): runs a task in another loop of this process and returns its result; for daemons that
// divide their state among loops (shards), one per core.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff {

namespace run_on_detail {

// The task's own token, in the loop there; null: the task has ended, or has not begun.
struct Cancellation {
  CancellationToken* token = nullptr;
  std::optional<Error> early = {};  // why it is cancelled before it has begun
};

// Tells the caller in the next turn, when this task has left its gate: the caller may then destroy
// the gate.
template <class T>
Task<void> run_and_tell(Task<T> task, std::optional<T>& result, Loop& there, Loop& back,
                        Event& done, std::shared_ptr<Cancellation> cancellation) {
  CancelScope scope(there, co_await current_cancellation(), INT64_MAX, {});
  cancellation->token = &scope.cancellation();
  if (cancellation->early) scope.cancellation().request(std::move(*cancellation->early));
  result.emplace(co_await std::move(task).with_cancellation(scope.cancellation()));
  cancellation->token = nullptr;
  there.post([&back, &done] { back.post([&done] { done.set(); }); });
}

inline void cancel(Loop& there, const std::shared_ptr<Cancellation>& cancellation, Error reason) {
  there.post([cancellation, reason = std::move(reason)] {
    if (cancellation->token != nullptr) {
      cancellation->token->request(reason);
    } else {
      cancellation->early = reason;
    }
  });
}

inline Task<bool> with_result(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

}  // namespace run_on_detail

// Runs `task` in the loop of `there` and waits for it in `here`, the loop of the caller. If they
// are the same loop, it only awaits the task. A cancellation of the caller, or closing `there`,
// cancels the task; the caller still waits until it has ended. Both loops run until then.
template <class T>
Task<T> run_on(Loop& here, Gate& there, Task<T> task) {
  if (&there.loop() == &here) co_return co_await std::move(task);
  std::optional<T> result;
  Event done(here);
  const auto moved = std::make_shared<Task<T>>(std::move(task));
  const auto cancellation = std::make_shared<run_on_detail::Cancellation>();
  there.loop().post([moved, cancellation, &there, &result, &here, &done] {
    there.spawn(run_on_detail::run_and_tell(std::move(*moved), result, there.loop(), here, done,
                                            cancellation));
  });
  const auto waited = co_await done.wait();
  if (!waited) {
    run_on_detail::cancel(there.loop(), cancellation, waited.error());
    (void)co_await wait_for(done).shielded();
  }
  co_return std::move(*result);
}

inline Task<void> run_on(Loop& here, Gate& there, Task<void> task) {
  (void)co_await run_on(here, there, run_on_detail::with_result(std::move(task)));
}

}  // namespace ff

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

// Tells the caller in the next turn, when this task has left its gate: the caller may then destroy
// the gate.
template <class T>
Task<void> run_and_tell(Task<T> task, std::optional<T>& result, Loop& there, Loop& back,
                        Event& done) {
  result.emplace(co_await std::move(task));
  there.post([&back, &done] { back.post([&done] { done.set(); }); });
}

inline Task<bool> with_result(Task<void> task) {
  co_await std::move(task);
  co_return true;
}

}  // namespace run_on_detail

// Runs `task` in the loop of `there` and waits for it in `here`, the loop of the caller. If they
// are the same loop, it only awaits the task. Otherwise the caller's cancellation reaches neither
// the wait nor the task, which ends early only if `there` is closed. Both loops run until the task
// has ended.
template <class T>
Task<T> run_on(Loop& here, Gate& there, Task<T> task) {
  if (&there.loop() == &here) co_return co_await std::move(task);
  std::optional<T> result;
  Event done(here);
  const auto moved = std::make_shared<Task<T>>(std::move(task));
  there.loop().post([moved, &there, &result, &here, &done] {
    there.spawn(run_on_detail::run_and_tell(std::move(*moved), result, there.loop(), here, done));
  });
  (void)co_await wait_for(done).shielded();
  co_return std::move(*result);
}

inline Task<void> run_on(Loop& here, Gate& there, Task<void> task) {
  (void)co_await run_on(here, there, run_on_detail::with_result(std::move(task)));
}

}  // namespace ff

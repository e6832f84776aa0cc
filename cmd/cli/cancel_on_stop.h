// Cancels tasks of a loop on Ctrl-C, SIGTERM and --timeout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "platform/base/cancellation.h"
#include "platform/base/gate.h"
#include "platform/base/stop_token.h"
#include "platform/base/wait.h"

namespace ff::cmd {

// Deadline (steady clock) of the RPCs of a command whose --timeout starts now; 0: none. It is a
// little before the end of the stop token: the error of the last RPC says more than "timeout".
inline int64_t deadline_before_stop_ns(const StopToken& stop, int64_t timeout_ns) {
  constexpr int64_t kBeforeNs = 200 * kMillisecond;
  if (timeout_ns == 0) return INT64_MAX;
  return stop.clock().steady_ns() + std::max(timeout_ns - kBeforeNs, timeout_ns / 2);
}

// Returns when `stop` asks to stop.
inline Task<void> wait_for_stop(Loop& loop, const StopToken& stop) {
  return poll_until(loop, [&stop] { return !stop.check().ok(); });
}

namespace cancel_on_stop_detail {

inline Task<void> cancel_at_stop(Loop& loop, const StopToken& stop, CancellationToken& cancel) {
  co_await wait_for_stop(loop, stop);
  if (auto stopped = stop.check(); !stopped) cancel.request(std::move(stopped).error());
}

}  // namespace cancel_on_stop_detail

// Runs `task`; cancels it with the error of `stop` when that asks to stop.
template <class T>
Task<Result<T>> cancel_on_stop(Loop& loop, const StopToken& stop, Task<Result<T>> task) {
  CancellationToken cancel;
  Gate watching(loop);
  watching.spawn(cancel_on_stop_detail::cancel_at_stop(loop, stop, cancel));
  auto result = co_await std::move(task).with_cancellation(cancel);
  Error over = fail(Errc::interrupted, "done");
  co_await watching.close(std::move(over));
  co_return result;
}

}  // namespace ff::cmd

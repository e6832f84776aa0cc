// Ctrl-C, SIGTERM and --timeout for what runs on a loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "platform/base/cancellation.h"
#include "platform/base/gate.h"
#include "platform/base/stop_token.h"
#include "platform/base/wait.h"

namespace ff::cmd {

// When calls are given up (steady), of a command whose --timeout began now; 0: never. A little
// before the stop's own end: the last failure says more than that time is over.
inline int64_t before_stop_ns(const StopToken& stop, int64_t timeout_ns) {
  constexpr int64_t kBeforeNs = 200 * kMillisecond;
  if (timeout_ns == 0) return INT64_MAX;
  return stop.clock().steady_ns() + std::max(timeout_ns - kBeforeNs, timeout_ns / 2);
}

// Until `stop` says so.
inline Task<void> wait_for_stop(Loop& loop, const StopToken& stop) {
  return poll_until(loop, [&stop] { return !stop.check().ok(); });
}

namespace stop_watch_detail {

inline Task<void> cancel_at_stop(Loop& loop, const StopToken& stop, CancellationToken& cancel) {
  co_await wait_for_stop(loop, stop);
  if (auto stopped = stop.check(); !stopped) cancel.request(std::move(stopped).error());
}

}  // namespace stop_watch_detail

// The task, cancelled with the stop's error when that says so.
template <class T>
Task<Result<T>> stoppable(Loop& loop, const StopToken& stop, Task<Result<T>> task) {
  CancellationToken cancel;
  Gate watching(loop);
  watching.spawn(stop_watch_detail::cancel_at_stop(loop, stop, cancel));
  auto result = co_await std::move(task).with_cancellation(cancel);
  Error over = fail(Errc::interrupted, "done");
  co_await watching.close(std::move(over));
  co_return result;
}

}  // namespace ff::cmd

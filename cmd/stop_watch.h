// Ctrl-C, SIGTERM and --timeout for what runs on a loop.
#pragma once

#include <utility>

#include "base/cancel.h"
#include "base/gate.h"
#include "base/stop.h"
#include "base/wait.h"

namespace ff::cmd {

// Until `stop` says so.
inline Task<void> wait_for_stop(Loop& loop, const Stop& stop) {
  return poll_until(loop, [&stop] { return !stop.check().ok(); });
}

namespace stop_watch_detail {

inline Task<void> cancel_at_stop(Loop& loop, const Stop& stop, Cancel& cancel) {
  auto waiting = wait_for_stop(loop, stop);
  co_await std::move(waiting);
  if (auto stopped = stop.check(); !stopped) cancel.request(std::move(stopped).error());
}

}  // namespace stop_watch_detail

// The task, cancelled with the stop's error when that says so.
template <class T>
Task<Result<T>> stoppable(Loop& loop, const Stop& stop, Task<Result<T>> task) {
  Cancel cancel;
  Gate watching(loop);
  watching.spawn(stop_watch_detail::cancel_at_stop(loop, stop, cancel));
  auto result = co_await std::move(task).under(cancel);
  Error over = fail(Errc::interrupted, "done");
  auto closing = watching.close(std::move(over));
  co_await std::move(closing);
  co_return result;
}

}  // namespace ff::cmd

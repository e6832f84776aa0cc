// How the engines that may meet a conflict wait before they run a function again.
#pragma once

#include <cstdint>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/clock.h"
#include "platform/base/loop.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"

namespace ff::kv {

// Between attempts that meet others, or a store that does not answer.
inline Backoff retry_backoff(Rng& rng) { return {rng, kMillisecond, 256 * kMillisecond}; }

// Before the next attempt. `late` is the error when there is no time for one.
inline Task<Result<void>> pause_before_retry(Loop& loop, Backoff& backoff, int64_t deadline_ns,
                                             Error late) {
  const int64_t again_ns = loop.now_ns() + backoff.pause_ns();
  if (again_ns >= deadline_ns) co_return late;
  co_return co_await until(loop, again_ns);
}

}  // namespace ff::kv

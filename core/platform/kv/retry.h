// Backoff between the attempts of engines with optimistic transactions.
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

// Backoff after conflicts, or while the store does not answer.
inline Backoff retry_backoff(Rng& rng) { return {rng, kMillisecond, 256 * kMillisecond}; }

// Waits before the next attempt; returns `late` if the deadline comes first.
inline Task<Result<void>> wait_before_retry(Loop& loop, Backoff& backoff, int64_t deadline_ns,
                                            Error late) {
  const int64_t again_ns = loop.now_ns() + backoff.next_delay_ns();
  if (again_ns >= deadline_ns) co_return late;
  co_return co_await sleep_until(loop, again_ns);
}

}  // namespace ff::kv

// The attempts at a transaction of an engine with optimistic transactions: the function runs, its
// commit is refused if what it has read has changed meanwhile, and after a backoff it runs again.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "platform/base/backoff.h"
#include "platform/base/cancellation.h"
#include "platform/base/clock.h"
#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"

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

// How one attempt at a transaction has ended.
enum class AttemptResult : uint8_t {
  committed,
  conflict,  // nothing was written
  unknown,   // the answer was lost; the engine settles the outcome before the next attempt
};

// Series ff_kv_...: what became of transactions.
struct TransactionSeries {
  explicit TransactionSeries(Metrics& metrics)
      : commits(metrics.counter("ff_kv_commits_total", "Transactions that were committed")),
        conflicts(metrics.counter("ff_kv_conflicts_total",
                                  "Transactions that were repeated because of a conflict")) {}
  Counter& commits;
  Counter& conflicts;
};

// One attempt: runs `function` with `txn`, and commits what it has written with `commit`, which
// cancellation does not interrupt.
template <class Transaction, class Commit>
Task<Result<AttemptResult>> attempt_transaction(Transaction& txn, const TxnFunction& function,
                                                const Commit& commit) {
  auto result = co_await function(txn);
  if (txn.outdated()) co_return AttemptResult::conflict;
  FF_CO_TRY(std::move(result));
  FF_CO_TRY(txn.check());
  if (txn.writes().empty()) co_return AttemptResult::committed;
  if (const CancellationToken* cancel = co_await current_cancellation();
      cancel && cancel->requested()) {
    co_return cancel->reason();
  }
  co_return co_await commit(txn).shielded();
}

// Repeats `attempt` until the transaction is committed, an attempt fails for good, or the deadline
// passes: Errc::unreachable if it may have been committed, else Errc::deadline. `store`: its name,
// for messages.
template <class Attempt>
Task<Result<void>> retry_transaction(Loop& loop, Rng& rng, TransactionSeries& series,
                                     std::string store, int64_t deadline_ns,
                                     const Attempt& attempt) {
  Backoff backoff = retry_backoff(rng);
  bool unknown = false;
  for (int attempts = 1;; ++attempts) {
    const Result<AttemptResult> end = co_await attempt();
    Result<void> next;
    if (!end) {
      next = end.error();
    } else if (*end == AttemptResult::committed) {
      series.commits.add();
      co_return Result<void>();
    } else {
      unknown = unknown || *end == AttemptResult::unknown;
      if (*end == AttemptResult::conflict) series.conflicts.add();
      Error late =
          fail(Errc::deadline, "a transaction conflicted with others in {} attempts", attempts);
      next = co_await wait_before_retry(loop, backoff, deadline_ns, std::move(late));
    }
    if (next) continue;
    if (unknown && next.error().code == Errc::deadline) {
      co_return fail(Errc::unreachable, "{} did not confirm a commit; it may have happened", store);
    }
    co_return next;
  }
}

}  // namespace ff::kv

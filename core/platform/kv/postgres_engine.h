// A store on PostgreSQL, for several machines, with optimistic transactions: one table of keys,
// values and versions; each commit gives the rows that it changes a new random version.
//
// Reads: all reads that wait go to the server as one statement. It also compares the versions of
// everything that the same function has read before, so that a function always sees one snapshot,
// without an open transaction. A function that reads more than that allows (long scans of view())
// runs again in a transaction of its own (REPEATABLE READ, READ ONLY).
//
// Commits: all transactions that wait form a group, which the server commits in one transaction
// and one round trip (group commit). It holds an advisory lock, so that groups of all engines run
// one after the other, compares the versions that each transaction has read, and applies the writes
// of those that still hold. The others have met a conflict and run again.
//
// An answer may be lost, and the server may execute a group much later. So every group also
// compares the engine's fence, a row of its own. Before the engine sends another group or runs a
// function again, it makes the server close the lost connection, and changes the fence, so that the
// lost group has either happened or never will.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "platform/kv/engine.h"
#include "platform/kv/postgres_connection.h"
#include "platform/kv/retry.h"

namespace ff::kv {

class PostgresEngine final : public Engine {
 public:
  // Also how the transactions were grouped, and how long the server takes.
  struct Series : TransactionSeries {
    explicit Series(Metrics& metrics);
    Counter& groups;    // of transactions that were committed
    Counter& unknown;   // groups whose answer was lost
    Histogram& commit;  // of one group
    Histogram& read;    // of one statement with all reads that waited
  };

  // All must outlive it. The first use creates the tables if there are none.
  PostgresEngine(PostgresOptions options, Loop& loop, Rng& rng, Metrics& metrics);
  ~PostgresEngine() override;

  // If no server answers, both retry until the deadline and then return the last error.
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override;
  const Series& series() const { return series_; }

 private:
  class Transaction;
  class SnapshotTransaction;
  class ServerConnection;
  struct Read;
  struct Commit;
  using ReadPtr = std::shared_ptr<Read>;
  using CommitPtr = std::shared_ptr<Commit>;
  using Group = std::vector<CommitPtr>;

  Task<Result<AttemptResult>> attempt(const TxnFunction& function, int64_t deadline_ns);
  Task<Result<void>> view_snapshot(TxnFunction function, int64_t deadline_ns);
  Task<Result<void>> read(ReadPtr read, int64_t deadline_ns);
  Task<void> serve_reads(ServerConnection& reader);
  Task<Result<AttemptResult>> commit(const Transaction& txn, int64_t deadline_ns);
  Task<void> serve_commits();
  Task<Result<void>> prepare_commits();
  Task<Result<void>> put_fence();
  Task<Result<void>> close_lost_connection();
  Task<Result<void>> send_group(Group& group);
  Group next_group();
  void finish_conflicts(const Group& group);
  void refuse_group(const Group& group, const Error& error);
  Error late() const;
  void note_success();
  void note_failure(const Error& error);

  const PostgresOptions options_;
  Loop& loop_;
  Rng& rng_;
  Series series_;
  const std::string fence_name_;  // also the application_name of the connection that commits
  int64_t fence_ = 0;             // 0: must be put before the next group
  bool lost_ = false;             // the server may still execute a group whose answer was lost
  std::optional<Error> failure_;  // why no server answers
  std::deque<ReadPtr> reads_;
  std::deque<CommitPtr> commits_;
  bool committing_ = false;  // serve_commits() runs
  std::vector<std::unique_ptr<ServerConnection>> readers_;
  std::unique_ptr<ServerConnection> committer_;
  std::vector<std::unique_ptr<ServerConnection>> snapshot_readers_;  // idle
  Semaphore snapshots_;
  Gate gate_;
};

}  // namespace ff::kv

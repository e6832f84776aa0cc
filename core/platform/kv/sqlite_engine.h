// The store of one machine: an SQLite file, one writer thread and several reader threads.
//
// The writer runs all queued functions one after the other in one SQLite transaction and commits
// them with one sync (group commit); callers get their answers afterwards. So functions never
// conflict. view() reads a snapshot of the write-ahead log, concurrently with the writer.
//
// Passing a function to a thread and back takes longer than most functions. So a single function
// with asynchronous commit runs in its loop's thread if the writer is idle; view_inline() reads
// there too, with the writer's page cache; while the writer or another loop uses that, with a
// connection of the engine.
//
// Each SQLite transaction increments the store's position in a row of its own. Each open() that
// owns the file first records the current position with a new generation.
//
// The time to open a file does not depend on its size: a thread checks the structure of all pages
// afterwards. If it finds damage, the store says so in the log and accepts no more writes, as it
// would after a failed sync. Reads go on: each verifies the checksums of its records. While the
// check runs, its snapshot keeps the write-ahead log from being used from its start again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/loop.h"
#include "platform/base/metrics.h"
#include "platform/db/database.h"
#include "platform/kv/engine.h"

namespace ff::kv {

// The file and its threads, shared by the engines of all loops. It must outlive them.
class SqliteStore {
 public:
  struct Options {
    db::OnCorrupt on_corrupt = db::OnCorrupt::refuse;
    unsigned readers = 2;  // threads
    // This process is the only writer; begins a new generation (kv/commit_position.h), and checks
    // the file. Otherwise nobody does: the process that owns the file has.
    bool owned = true;
    std::string corrupt_hint = {};  // what an operator can do about a damaged file
  };
  // Opens or creates the file `path`; its directory must exist. Errors: those of
  // db::Database::open(). OnCorrupt::recreate: checks the whole file first.
  static Result<std::unique_ptr<SqliteStore>> open(const std::string& path, Clock& clock,
                                                   Options options);
  // Completes all queued requests and joins the threads.
  ~SqliteStore();
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  // The path to which open() moved a corrupt file; else empty.
  const std::string& moved_aside() const { return moved_aside_; }
  CommitPosition last_commit() const;
  std::optional<uint64_t> durable_position(uint64_t generation) const;
  // The result of the check of the whole file; empty: it still runs.
  std::optional<Result<void>> check_result() const;

 private:
  friend class SqliteEngine;
  class DbConnection;
  struct Request;
  // Requests waiting for the writer or for the readers.
  struct Queue {
    std::condition_variable wanted;
    std::deque<std::shared_ptr<Request>> requests;
  };

  SqliteStore(Clock& clock, std::string moved_aside);
  void add(Queue& queue, std::vector<std::shared_ptr<Request>> requests);
  bool write_now(const std::shared_ptr<Request>& request);
  bool read_now(Request& request);
  std::vector<std::shared_ptr<Request>> wait_for_writes(std::optional<int64_t> until_ns);
  static std::vector<std::shared_ptr<Request>> pop_front(Queue& queue, size_t most);
  bool try_start(Request& request);
  bool begin(Request& request);
  void withdraw(const std::shared_ptr<Request>& request);
  std::vector<std::shared_ptr<Request>> wait_for_requests(Queue& queue, size_t most);
  void write_loop(DbConnection& connection);
  void read_loop(DbConnection& connection);
  void check_file(const std::string& hint);
  void report_damage(Gauge* gauge);
  bool is_damaged() const;
  void finish(const std::vector<std::shared_ptr<Request>>& requests);

  Clock& clock_;
  const std::string moved_aside_;
  std::mutex writing_;  // the writer's connection; taken before the other
  mutable std::mutex mutex_;
  std::condition_variable ended_;  // a function has ended
  bool closing_ = false;
  bool writer_work_ = false;  // the writer, for something else than requests
  Queue writes_;
  Queue reads_;
  std::vector<std::unique_ptr<DbConnection>> connections_;  // the writer's first
  std::optional<db::Database> checked_;                     // the connection of the check
  std::optional<Result<void>> check_result_;
  Gauge* damaged_ = nullptr;
  std::vector<std::thread> threads_;
};

class SqliteEngine final : public Engine, private Runnable {
 public:
  // With `metrics`: series ff_kv_damaged, of one engine of a store at most.
  SqliteEngine(SqliteStore& store, Loop& loop, Metrics* metrics = nullptr);
  ~SqliteEngine() override;

  // Functions may run in a thread of the store. The task ends only after its function has ended,
  // even if it is cancelled.
  Task<Result<void>> run(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> run_async_commit(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  CommitPosition last_commit() const override { return store_.last_commit(); }
  std::optional<uint64_t> durable_position(uint64_t generation) const override {
    return store_.durable_position(generation);
  }
  Task<Result<void>> view(TxnFunction function, int64_t deadline_ns) override;
  Task<Result<void>> view_inline(TxnFunction function, int64_t deadline_ns) override;

 private:
  using Requests = std::vector<std::shared_ptr<SqliteStore::Request>>;

  enum class Kind : uint8_t { read, write, write_durable };
  Task<Result<void>> submit(Kind kind, TxnFunction function, int64_t deadline_ns);
  void on_wake() override;

  SqliteStore& store_;
  Loop& loop_;
  const bool reports_damage_;
  // The requests of this turn of the loop. They go to the writer together, so that the tasks that
  // one commit has resumed form the next group commit.
  Requests gathered_;
  std::unique_ptr<SqliteStore::DbConnection> reader_;  // of view_inline()
};

}  // namespace ff::kv

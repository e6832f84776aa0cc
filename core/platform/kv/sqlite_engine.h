// The store of one machine: an SQLite file, a thread that writes and threads that read.
//
// The writer runs the functions that have piled up back to back in one SQLite transaction and
// commits them, with one sync if somebody waits for that (group commit); nobody is answered before.
// So functions never meet a conflict. view() reads a snapshot of the write-ahead log, beside the
// writer.
//
// Handing a function to a thread and back takes longer than running most of them. So one that comes
// alone, and need not be durable at once, runs in its loop's thread while the writer has nothing to
// do; and look() reads there, with the pages that the writer has already.
//
// Each SQLite transaction counts the store's position up, in a row of its own; each open() that
// owns the file writes down the position that it finds, under a new generation, before anything
// else.
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
#include "platform/db/database.h"
#include "platform/kv/engine.h"

namespace ff::kv {

// The file, used by the engines of any number of loops, which end before it.
class SqliteStore {
 public:
  struct Options {
    db::OnCorrupt on_corrupt = db::OnCorrupt::refuse;
    unsigned readers = 2;  // threads
    // Nobody else writes to it: this begins a generation (kv/mark.h).
    bool owned = true;
  };
  // Opens or makes the file `path`, whose folder exists. Errors: those of db::Database::open.
  static Result<std::unique_ptr<SqliteStore>> open(const std::string& path, Clock& clock,
                                                   Options options);
  // Ends its threads, once they have done what is queued.
  ~SqliteStore();
  SqliteStore(const SqliteStore&) = delete;
  SqliteStore& operator=(const SqliteStore&) = delete;

  // Where open() put the corrupt file that it found; else empty.
  const std::string& moved_aside() const { return moved_aside_; }
  Mark mark() const;
  std::optional<uint64_t> durable(uint64_t generation) const;

 private:
  friend class SqliteEngine;
  class Session;
  struct Request;
  // Requests that wait, for the writer or for the readers.
  struct Queue {
    std::condition_variable wanted;
    std::deque<std::shared_ptr<Request>> requests;
  };

  SqliteStore(Clock& clock, std::string moved_aside);
  void add(Queue& queue, std::vector<std::shared_ptr<Request>> requests);
  bool write_now(const std::shared_ptr<Request>& request);
  bool read_now(Request& request);
  std::vector<std::shared_ptr<Request>> take_writes(std::optional<int64_t> until_ns);
  static std::vector<std::shared_ptr<Request>> first_of(Queue& queue, size_t most);
  bool hold(Request& request);
  bool begin(Request& request);
  void withdraw(const std::shared_ptr<Request>& request);
  std::vector<std::shared_ptr<Request>> take(Queue& queue, size_t most);
  void write_loop(Session& session);
  void read_loop(Session& session);
  void finish(const std::vector<std::shared_ptr<Request>>& requests);

  Clock& clock_;
  const std::string moved_aside_;
  std::mutex writing_;  // the writer's session; taken before the other
  std::mutex mutex_;
  std::condition_variable ended_;  // a function has
  bool closing_ = false;
  bool woken_ = false;  // the writer, for something else than requests
  Queue writes_;
  Queue reads_;
  std::vector<std::unique_ptr<Session>> sessions_;  // the writer's first
  std::vector<std::thread> threads_;
};

class SqliteEngine final : public Engine, private Ready {
 public:
  SqliteEngine(SqliteStore& store, Loop& loop);
  ~SqliteEngine() override;

  // Functions run in a thread of the store. The task ends only when its function has, also when it
  // is cancelled.
  Task<Result<void>> run(Function function, int64_t deadline_ns) override;
  Task<Result<void>> run_soon(Function function, int64_t deadline_ns) override;
  Task<Result<void>> sync(int64_t deadline_ns) override;
  Mark mark() const override { return store_.mark(); }
  std::optional<uint64_t> durable(uint64_t generation) const override {
    return store_.durable(generation);
  }
  Task<Result<void>> view(Function function, int64_t deadline_ns) override;
  Task<Result<void>> look(Function function, int64_t deadline_ns) override;

 private:
  using Requests = std::vector<std::shared_ptr<SqliteStore::Request>>;

  enum class Kind : uint8_t { read, write, write_durable };
  Task<Result<void>> submit(Kind kind, Function function, int64_t deadline_ns);
  void fire() override;

  SqliteStore& store_;
  Loop& loop_;
  // Those of this turn of the loop, which go to the writer together: the tasks that one commit has
  // answered make up the next, and not the first of them alone.
  Requests gathered_;
  std::unique_ptr<SqliteStore::Session> reader_;  // of look()
};

}  // namespace ff::kv

// Group commit of metadata: the changes of all waiting callers share one entry of the log, which
// the loop writes itself, and one sync. Checkpoints run in a thread in production, in the loop in
// simulation; callers see no difference.
//
// Entries keep the order of the calls. Belongs to one loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/base/worker_thread.h"
#include "platform/io/async.h"
#include "storage/chunk/metadata.h"

namespace ff::chunk {

// Where checkpoints of the metadata run.
enum class CommitOn : uint8_t { thread, loop };

class Committer : private Runnable {
 public:
  Committer(Metadata& metadata, Loop& loop, io::AsyncQueue& queue, CommitOn where);
  // Queued changes are dropped; their callers are not notified.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Returns when the changes are applied, all or none. Not cancellable. When an entry cannot be
  // written, all callers that share it get the error.
  Task<Result<void>> commit(RowChanges changes);
  // Applies changes, without data, that nobody waits for: they share the next entry, at most a
  // millisecond from now, and stay in order. They are kept while no entry can be written. If the
  // process dies before, they have not happened.
  void commit_later(const RowChanges& changes);
  // Returns when these and all earlier changes are durable.
  Task<Result<void>> commit_durably(RowChanges changes);
  // The LSN of the data of the next call of commit(), if its first change is a data_change() and
  // the caller makes no other call and does not wait before.
  uint64_t next_data_lsn() const;

  // Waits until metadata_.needs_checkpoint() may hold.
  Task<Result<void>> checkpoint_needed() { return wait_for(checkpoint_needed_); }
  // Makes a checkpoint of the segments before `end`, in which no row refers to data; not
  // cancellable. Errors appear in commit().
  Task<void> run_checkpoint(uint64_t end);
  // No checkpoint is possible now: the next full segment leads to the next attempt.
  void put_off_checkpoint();
  // Waits until no flush is under way.
  Task<void> wait_idle() { return gate_.wait_empty(); }

 private:
  struct Request {
    Request(Loop& loop, bool durable) : flush(durable), done(loop) {}
    const bool flush;
    Result<void> result;
    Event done;  // of loop_
  };
  using Requests = std::vector<std::shared_ptr<Request>>;

  Task<Result<void>> submit(RowChanges changes, bool flush);
  void on_wake() override;
  void keep_later();
  Task<Result<void>> flush();
  Task<void> run_flushes();

  Metadata& metadata_;
  Loop& loop_;
  io::AsyncQueue& queue_;
  // Requests of the current turn of the loop: completions that arrive together share an entry.
  Requests gathered_;
  std::string rows_;                              // of gathered_ and of commit_later(), encoded
  std::vector<std::pair<size_t, size_t>> later_;  // begin and end of the latter in rows_
  Timer timer_;                                   // for them
  Requests unflushed_;                            // applied requests that wait for a sync
  bool flushing_ = false;                         // run_flushes() is active
  Event checkpoint_needed_;
  std::unique_ptr<WorkerThread> thread_;  // null: checkpoints run in the loop
  Gate gate_;
};

}  // namespace ff::chunk

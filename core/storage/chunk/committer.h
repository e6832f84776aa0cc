// Group commit of metadata: the changes of all waiting callers share one entry of the log, which
// the loop writes itself, and one sync. Checkpoints run in a thread in production, in the loop in
// simulation; callers see no difference.
//
// Entries keep the order of the calls. Belongs to one loop.
#pragma once

#include <memory>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
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
  // Returns when these and all earlier changes are durable.
  Task<Result<void>> commit_durably(RowChanges changes);
  // Waits until no checkpoint is under way.
  Task<void> wait_idle() { return gate_.wait_empty(); }

 private:
  struct Request {
    Request(Loop& loop, RowChanges what, bool durable)
        : changes(std::move(what)), flush(durable), done(loop) {}
    RowChanges changes;
    const bool flush;
    Result<void> result;
    Event done;  // of loop_
  };
  using Requests = std::vector<std::shared_ptr<Request>>;

  Task<Result<void>> submit(RowChanges changes, bool flush);
  void on_wake() override;
  Task<Result<void>> flush();
  Task<void> run_flushes();
  Task<void> run_checkpoint();

  Metadata& metadata_;
  Loop& loop_;
  io::AsyncQueue& queue_;
  // Requests of the current turn of the loop: completions that arrive together share an entry.
  Requests gathered_;
  Requests unflushed_;                    // applied requests that wait for a sync
  bool flushing_ = false;                 // run_flushes() is active
  std::unique_ptr<WorkerThread> thread_;  // null: checkpoints run in the loop
  Gate gate_;
};

}  // namespace ff::chunk

// Group commit of metadata: the changes of all waiting callers share one SQLite transaction. A
// dedicated thread runs SQLite in production, the loop in simulation; callers see no difference.
//
// Transactions keep the order of the calls. Belongs to one loop.
//
// Passing a batch to the thread and back takes longer than most transactions. So the loop's thread
// runs a small batch that needs no flush itself while the committer thread is idle.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "platform/base/gate.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "storage/chunk/metadata.h"

namespace ff::chunk {

enum class CommitOn : uint8_t { thread, loop };

class Committer : private Runnable {
 public:
  Committer(Metadata& metadata, Loop& loop, CommitOn where);
  // Queued changes are still committed; their callers are not notified.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Returns when the changes are applied, all or none. Not cancellable. When a transaction fails,
  // all callers that share it get its error.
  Task<Result<void>> commit(RowChanges changes);
  // Returns when these and all earlier changes are durable.
  Task<Result<void>> commit_durably(RowChanges changes);

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
  Requests take_batch();
  Result<void> apply(const Requests& requests);
  void commit_batch(const Requests& requests);
  bool commit_inline();
  void finish(Requests requests);
  void on_wake() override;
  void run_thread();
  Task<void> run_on_loop();

  Metadata& metadata_;
  Loop& loop_;
  const CommitOn where_;
  bool running_ = false;  // run_on_loop() is active
  // Requests of the current loop iteration. They go to the thread together, so that completions
  // which arrive together share a transaction.
  Requests gathered_batch_;
  std::mutex metadata_mutex_;  // guards the metadata; lock before mutex_
  std::mutex mutex_;           // guards the following members while the thread runs
  std::condition_variable work_available_;
  std::deque<std::shared_ptr<Request>> queue_;
  bool closing_ = false;
  bool checkpoint_due_ = false;  // the thread checks whether the log needs a checkpoint

  Gate gate_;
  std::thread thread_;
};

}  // namespace ff::chunk

// Group commit: the changes of all who wait go into one transaction. On a machine a thread of its
// own runs SQLite, in simulation the loop does; what callers see is the same.
//
// Transactions happen in the order they were asked for. Belongs to one loop.
//
// Handing a transaction to the thread and back takes longer than most of them: one of few requests
// that need not be durable runs in the loop's own thread while the other has nothing to do.
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

class Committer : private Ready {
 public:
  Committer(Metadata& metadata, Loop& loop, CommitOn where);
  // What is queued is still done; nobody waits for it any more.
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  // Returns when the changes are applied, all or none. Not to be cancelled: what was asked for
  // happens. An error of one transaction is that of all who share it.
  Task<Result<void>> commit(RowChanges changes);
  // The same, and returns when they and all before them are durable.
  Task<Result<void>> commit_durably(RowChanges changes);

 private:
  struct Request {
    Request(Loop& loop, RowChanges what, bool durable)
        : changes(std::move(what)), flush(durable), done(loop) {}
    RowChanges changes;
    const bool flush;
    Result<void> result;
    Event done;  // the loop's
  };
  using Requests = std::vector<std::shared_ptr<Request>>;

  Task<Result<void>> submit(RowChanges changes, bool flush);
  Requests take();
  Result<void> apply(const Requests& requests);
  void run(const Requests& requests);
  bool run_few();
  void finish(Requests requests);
  void fire() override;
  void run_thread();
  Task<void> run_here();

  Metadata& metadata_;
  Loop& loop_;
  const CommitOn where_;
  bool running_ = false;  // run_here() is
  // Those of this turn of the loop, which go to the thread together: what comes back from the disk
  // at once shares a transaction.
  Requests gathered_;
  std::mutex applying_;  // guards the metadata; taken before the other
  std::mutex mutex_;     // guards what follows while there is a thread
  std::condition_variable wanted_;
  std::deque<std::shared_ptr<Request>> queue_;
  bool closing_ = false;
  bool tidying_ = false;  // the thread is to look at the log

  Gate gate_;
  std::thread thread_;
};

}  // namespace ff::chunk

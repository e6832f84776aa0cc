// committer.cc: the request queue, and the threads that commit it.
#include "storage/chunk/committer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/base/wait.h"

namespace ff::chunk {
namespace {

// Maximum number of requests per transaction. The fixed cost of a transaction no longer matters
// above some hundred.
constexpr size_t kBatchMax = 256;
// Maximum batch that the loop commits itself; it blocks other tasks for about 100 us.
constexpr size_t kInlineRequestsMax = 8;

}  // namespace

Committer::Committer(Metadata& metadata, Loop& loop, CommitOn where)
    : metadata_(metadata), loop_(loop), where_(where), gate_(loop) {
  if (where == CommitOn::loop) return;
  thread_ = std::thread([this] { run_thread(); });
}

Committer::~Committer() {
  if (!thread_.joinable()) return;
  on_wake();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_available_.notify_one();
  thread_.join();
}

Task<Result<void>> Committer::commit(RowChanges changes) {
  return submit(std::move(changes), false);
}

Task<Result<void>> Committer::commit_durably(RowChanges changes) {
  return submit(std::move(changes), true);
}

Task<Result<void>> Committer::submit(RowChanges changes, bool flush) {
  auto request = std::make_shared<Request>(loop_, std::move(changes), flush);
  if (where_ == CommitOn::thread) {
    gathered_batch_.push_back(request);
    loop_.wake_at_turn_end(*this);
  } else {
    queue_.push_back(request);
    if (!std::exchange(running_, true)) gate_.spawn(run_on_loop());
  }
  (void)co_await wait_for(request->done).shielded();
  co_return request->result;
}

// Commits the batch on the loop's thread if the committer thread is idle. Returns false when it is
// not.
bool Committer::commit_inline() {
  if (!thread_.joinable() || gathered_batch_.size() > kInlineRequestsMax) return false;
  for (const auto& request : gathered_batch_) {
    if (request->flush) return false;
  }
  const std::unique_lock applying(metadata_mutex_, std::try_to_lock);
  if (!applying) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !queue_.empty()) return false;
  }
  const auto applied = apply(gathered_batch_);
  for (const auto& request : std::exchange(gathered_batch_, {})) {
    request->result = applied;
    request->done.set();
  }
  if (!metadata_.needs_checkpoint()) return true;
  {
    const std::lock_guard lock(mutex_);
    checkpoint_due_ = true;
  }
  work_available_.notify_one();
  return true;
}

void Committer::on_wake() {
  if (commit_inline()) return;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::move(gathered_batch_, std::back_inserter(queue_));
  }
  gathered_batch_.clear();
  work_available_.notify_one();
}

Committer::Requests Committer::take_batch() {
  const auto count = static_cast<ptrdiff_t>(std::min(kBatchMax, queue_.size()));
  Requests taken(queue_.begin(), queue_.begin() + count);
  queue_.erase(queue_.begin(), queue_.begin() + count);
  return taken;
}

// Applies all requests in one transaction.
Result<void> Committer::apply(const Requests& requests) {
  std::vector<const RowChanges*> batch;
  for (const auto& request : requests) batch.push_back(&request->changes);
  return metadata_.apply(batch);
}

// Requests without a flush complete before the flush.
void Committer::commit_batch(const Requests& requests) {
  const auto applied = apply(requests);
  Requests now;
  Requests later;
  for (const auto& request : requests) {
    request->result = applied;
    (applied && request->flush ? later : now).push_back(request);
  }
  finish(std::move(now));
  if (later.empty()) return;
  auto flushed = metadata_.flush();
  // After a failed flush the changes may be lost, also when the disk was full.
  if (!flushed) flushed.error().code = Errc::failed;
  for (const auto& request : later) request->result = flushed;
  finish(std::move(later));
}

void Committer::finish(Requests requests) {
  if (requests.empty()) return;
  const auto tell = [requests = std::move(requests)] {
    for (const auto& request : requests) request->done.set();
  };
  where_ == CommitOn::thread ? loop_.post(tell) : tell();
}

void Committer::run_thread() {
  for (;;) {
    Requests requests;
    {
      std::unique_lock lock(mutex_);
      work_available_.wait(lock, [this] { return closing_ || checkpoint_due_ || !queue_.empty(); });
      requests = take_batch();
      if (requests.empty() && !std::exchange(checkpoint_due_, false)) return;
    }
    const std::lock_guard applying(metadata_mutex_);
    if (!requests.empty()) commit_batch(requests);
    metadata_.checkpoint_if_needed();
  }
}

// Yields first, so that other ready tasks can join the transaction.
Task<void> Committer::run_on_loop() {
  (void)co_await YieldWait(loop_);
  for (;;) {
    const Requests requests = take_batch();
    if (requests.empty()) break;
    commit_batch(requests);
    metadata_.checkpoint_if_needed();
  }
  running_ = false;
}

}  // namespace ff::chunk

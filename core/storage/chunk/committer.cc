// committer.cc: the queue, and who works it off.
#include "storage/chunk/committer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "platform/base/wait.h"

namespace ff::chunk {
namespace {

// Requests that share a transaction. Above some hundred its fixed cost no longer counts.
constexpr size_t kBatchMax = 256;
// Requests that the loop does itself: the others of its tasks wait for some 100 us at most.
constexpr size_t kFew = 8;

}  // namespace

Committer::Committer(Metadata& metadata, Loop& loop, CommitOn where)
    : metadata_(metadata), loop_(loop), where_(where), gate_(loop) {
  if (where == CommitOn::loop) return;
  metadata_.shorten_log_by_hand();
  thread_ = std::thread([this] { run_thread(); });
}

Committer::~Committer() {
  if (!thread_.joinable()) return;
  fire();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wanted_.notify_one();
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
    gathered_.push_back(request);
    loop_.wake_late(*this);
  } else {
    queue_.push_back(request);
    if (!std::exchange(running_, true)) gate_.spawn(run_here());
  }
  auto ending = wait_for(request->done);
  (void)co_await std::move(ending).shielded();
  co_return request->result;
}

// In the loop's thread, if the other has nothing to do. False: it has.
bool Committer::run_few() {
  if (!thread_.joinable() || gathered_.size() > kFew) return false;
  for (const auto& request : gathered_) {
    if (request->flush) return false;
  }
  const std::unique_lock applying(applying_, std::try_to_lock);
  if (!applying) return false;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || !queue_.empty()) return false;
  }
  const auto applied = apply(gathered_);
  for (const auto& request : std::exchange(gathered_, {})) {
    request->result = applied;
    request->done.set();
  }
  if (!metadata_.log_is_long()) return true;
  {
    const std::lock_guard lock(mutex_);
    tidying_ = true;
  }
  wanted_.notify_one();
  return true;
}

void Committer::fire() {
  if (run_few()) return;
  {
    const std::lock_guard lock(mutex_);
    std::ranges::move(gathered_, std::back_inserter(queue_));
  }
  gathered_.clear();
  wanted_.notify_one();
}

Committer::Requests Committer::take() {
  const auto count = static_cast<ptrdiff_t>(std::min(kBatchMax, queue_.size()));
  Requests taken(queue_.begin(), queue_.begin() + count);
  queue_.erase(queue_.begin(), queue_.begin() + count);
  return taken;
}

// All in one transaction.
Result<void> Committer::apply(const Requests& requests) {
  std::vector<const RowChanges*> batch;
  for (const auto& request : requests) batch.push_back(&request->changes);
  return metadata_.apply(batch);
}

// Those who do not wait for the flush are answered before it.
void Committer::run(const Requests& requests) {
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
  // Whatever the reason, a full disk too: what was to be synced may be gone.
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
      wanted_.wait(lock, [this] { return closing_ || tidying_ || !queue_.empty(); });
      requests = take();
      if (requests.empty() && !std::exchange(tidying_, false)) return;
    }
    const std::lock_guard applying(applying_);
    if (!requests.empty()) run(requests);
    metadata_.shorten_log();
  }
}

// What else the loop has ready comes first, so that it can join the transaction.
Task<void> Committer::run_here() {
  (void)co_await YieldWait(loop_);
  for (;;) {
    const Requests requests = take();
    if (requests.empty()) break;
    run(requests);
  }
  running_ = false;
}

}  // namespace ff::chunk

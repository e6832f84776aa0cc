// committer.cc: gathers changes, and shares entries and syncs among their callers.
#include "storage/chunk/committer.h"

#include <utility>

#include "platform/base/wait.h"

namespace ff::chunk {

Committer::Committer(Metadata& metadata, Loop& loop, io::AsyncQueue& queue, CommitOn where)
    : metadata_(metadata),
      loop_(loop),
      queue_(queue),
      thread_(where == CommitOn::thread ? std::make_unique<WorkerThread>() : nullptr),
      gate_(loop) {}

Committer::~Committer() = default;

Task<Result<void>> Committer::commit(RowChanges changes) {
  return submit(std::move(changes), false);
}

Task<Result<void>> Committer::commit_durably(RowChanges changes) {
  return submit(std::move(changes), true);
}

Task<Result<void>> Committer::submit(RowChanges changes, bool flush) {
  auto request = std::make_shared<Request>(loop_, std::move(changes), flush);
  gathered_.push_back(request);
  loop_.wake_at_turn_end(*this);
  (void)co_await wait_for(request->done).shielded();
  co_return request->result;
}

// Writes the changes of this turn.
void Committer::on_wake() {
  const Requests requests = std::exchange(gathered_, {});
  std::vector<const RowChanges*> batch;
  batch.reserve(requests.size());
  for (const auto& request : requests) batch.push_back(&request->changes);
  const auto applied = metadata_.apply(batch);
  for (const auto& request : requests) {
    request->result = applied;
    if (applied && request->flush) {
      unflushed_.push_back(request);
    } else {
      request->done.set();
    }
  }
  if (!unflushed_.empty() && !std::exchange(flushing_, true)) gate_.spawn(run_flushes());
  if (metadata_.needs_checkpoint()) gate_.spawn(run_checkpoint());
}

Task<Result<void>> Committer::flush() {
  const uint64_t position = metadata_.position();
  const auto files = metadata_.unsynced_files();
  for (const auto& file : files) {
    auto synced = co_await queue_.sync(*file);
    if (synced) continue;
    // After a failed flush the changes may be lost, also when the disk was full.
    synced.error().code = Errc::failed;
    co_return synced;
  }
  metadata_.set_durable(position);
  co_return Result<void>();
}

Task<void> Committer::run_flushes() {
  while (!unflushed_.empty()) {
    const Requests requests = std::exchange(unflushed_, {});
    const auto flushed = co_await flush();
    for (const auto& request : requests) {
      request->result = flushed;
      request->done.set();
    }
  }
  flushing_ = false;
}

Task<void> Committer::run_checkpoint() {
  if (!metadata_.needs_checkpoint()) co_return;
  const CheckpointJob job = metadata_.begin_checkpoint();
  if (thread_ == nullptr) {
    metadata_.finish_checkpoint(job.run());
    co_return;
  }
  auto working = thread_->run<Checkpoint>(loop_, [job] { return job.run(); });
  metadata_.finish_checkpoint(co_await std::move(working));
}

}  // namespace ff::chunk

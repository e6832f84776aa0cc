// committer.cc: gathers changes, and shares entries and syncs among their callers.
#include "storage/chunk/committer.h"

#include <utility>

#include "platform/base/clock.h"

namespace ff::chunk {

namespace {

constexpr int64_t kLaterNs = kMillisecond;

}  // namespace

Committer::Committer(Metadata& metadata, Loop& loop, io::AsyncQueue& queue, CommitOn where)
    : metadata_(metadata),
      loop_(loop),
      queue_(queue),
      timer_(loop),
      checkpoint_needed_(loop),
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
  auto request = std::make_shared<Request>(loop_, flush);
  gathered_.push_back(request);
  append_rows(rows_, changes);
  loop_.wake_at_turn_end(*this);
  (void)co_await wait_for(request->done).shielded();
  co_return request->result;
}

void Committer::commit_later(const RowChanges& changes) {
  if (later_.empty()) timer_.set(loop_.now_ns() + kLaterNs, *this);
  const size_t begin = rows_.size();
  append_rows(rows_, changes);
  later_.emplace_back(begin, rows_.size());
}

// No entry could be written: leaves only the rows of commit_later().
void Committer::keep_later() {
  std::string kept;
  for (const auto& [begin, end] : later_) kept += rows_.substr(begin, end - begin);
  rows_ = std::move(kept);
  if (!later_.empty()) later_ = {{0, rows_.size()}};
}

uint64_t Committer::next_data_lsn() const {
  return metadata_.position() + kEntryHeaderBytes + rows_.size() + kDataAt;
}

// Writes the changes of this turn.
void Committer::on_wake() {
  const Requests requests = std::exchange(gathered_, {});
  timer_.stop();
  const auto applied = metadata_.apply(rows_);
  if (applied) later_.clear();
  keep_later();
  for (const auto& request : requests) {
    request->result = applied;
    if (applied && request->flush) {
      unflushed_.push_back(request);
    } else {
      request->done.set();
    }
  }
  if (!unflushed_.empty() && !std::exchange(flushing_, true)) gate_.spawn(run_flushes());
  if (metadata_.needs_checkpoint()) checkpoint_needed_.set();
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

void Committer::put_off_checkpoint() {
  checkpoint_needed_.reset();
  metadata_.put_off_checkpoint();
}

Task<void> Committer::run_checkpoint(uint64_t end) {
  checkpoint_needed_.reset();
  const CheckpointJob job = metadata_.begin_checkpoint(end);
  if (thread_ == nullptr) {
    metadata_.finish_checkpoint(job.run());
    co_return;
  }
  auto working = thread_->run<Checkpoint>(loop_, [job] { return job.run(); });
  metadata_.finish_checkpoint(co_await std::move(working));
  if (metadata_.needs_checkpoint()) checkpoint_needed_.set();
}

}  // namespace ff::chunk

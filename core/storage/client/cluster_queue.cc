// cluster_queue.cc: the thread of the queue starts operations and gets completions; the loop of the
// client runs them.
#include "storage/client/cluster_queue.h"

#include <utility>

#include "platform/base/check.h"
#include "platform/io/alignment.h"

namespace ff::client {

namespace {

// How often a waiting thread checks whether the program shall stop.
constexpr int64_t kQueuePollNs = 200 * kMillisecond;

}  // namespace

ClusterQueue::ClusterQueue(LoopExecutor& calls, io::Disk& local, io::QueueOptions options)
    : calls_(calls),
      depth_(options.depth),
      loop_(options.loop ? *options.loop : own_.emplace(clock_)),
      waited_(loop_) {
  shared_->queue = this;
  local_ = local.make_queue({.depth = options.depth, .loop = &loop_});
}

// Operations use their memory until they have ended.
ClusterQueue::~ClusterQueue() {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [this] { return shared_->running == 0; });
  shared_->queue = nullptr;
  shared_->finished.clear();
}

io::IoQueue::Done ClusterQueue::counted(Done done) {
  FF_CHECK(in_flight_ < depth_);
  in_flight_++;
  return [this, done = std::move(done)](Result<size_t> result) {
    in_flight_--;
    done_++;
    if (own_) own_->stop();
    if (done) done(std::move(result));
  };
}

// Runs on the loop of the client.
Task<void> ClusterQueue::run_operation(std::shared_ptr<SharedState> shared, Loop& loop,
                                       Operation operation, Done done) {
  auto result = co_await operation();
  const std::lock_guard lock(shared->mutex);
  shared->finished.push_back({std::move(done), std::move(result)});
  // Before the queue and its loop may be destroyed.
  loop.post([shared] { deliver(shared); });
  shared->running--;
  shared->changed.notify_all();
}

// Runs on the thread of the queue.
void ClusterQueue::deliver(const std::shared_ptr<SharedState>& shared) {
  for (;;) {
    std::unique_lock lock(shared->mutex);
    if (shared->finished.empty()) return;
    Completion finished = std::move(shared->finished.front());
    shared->finished.pop_front();
    lock.unlock();
    finished.done(std::move(finished.result));
  }
}

void ClusterQueue::start(Operation operation, Done done) {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->running++;
  }
  calls_.start(
      [shared = shared_, &loop = loop_, operation = std::move(operation),
       done = counted(std::move(done))] { return run_operation(shared, loop, operation, done); });
}

void ClusterQueue::read(io::File& file, ByteSpan into, uint64_t offset, Done done) {
  auto* const there = dynamic_cast<ClusterFile*>(&file);
  if (there == nullptr) return local_->read(file, into, offset, counted(std::move(done)));
  io::check_direct(file, into, offset);
  start([there, into, offset] { return there->read(into, offset); }, std::move(done));
}

void ClusterQueue::write(io::File& file, ByteView from, uint64_t offset, Done done) {
  auto* const there = dynamic_cast<ClusterFile*>(&file);
  if (there == nullptr) return local_->write(file, from, offset, counted(std::move(done)));
  io::check_direct(file, from, offset);
  start([there, from, offset] { return there->write(from, offset); }, std::move(done));
}

void ClusterQueue::sync(io::File& file, Done done) {
  auto* const there = dynamic_cast<ClusterFile*>(&file);
  if (there == nullptr) return local_->sync(file, counted(std::move(done)));
  start([there] { return there->flush(); }, std::move(done));
}

void ClusterQueue::on_wake() { own_->stop(); }

void ClusterQueue::run() {
  if (in_flight_ == 0) return;
  if (own_) {
    // A completion or the timer stops the loop.
    waited_.set(loop_.now_ns() + kQueuePollNs, *this);
    own_->run();
    waited_.stop();
    return;
  }
  const uint64_t before = done_;
  if (local_->in_flight() > 0) local_->run();
  if (done_ != before || in_flight_ == local_->in_flight()) return;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait(lock, [this] { return !shared_->finished.empty(); });
  }
  deliver(shared_);
}

void ClusterQueue::poll() {
  local_->poll();
  if (own_) {
    own_->stop();
    own_->run();
  } else {
    deliver(shared_);
  }
}

void ClusterQueue::register_buffers(std::span<const ByteSpan> spans) {
  local_->register_buffers(spans);
}

}  // namespace ff::client

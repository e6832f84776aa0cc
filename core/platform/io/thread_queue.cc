// thread_queue.cc: worker threads take operations from a list, run them with the blocking calls of
// File and append the results to a second list; run() empties it and runs the callbacks on the
// owner's thread. Operations start in order but take effect and complete in any order. With a loop,
// the first result in an empty list posts a delivery, which may run after the queue was destroyed.
#include "platform/io/thread_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "platform/base/cpus.h"
#include "platform/base/loop.h"
#include "platform/io/alignment.h"
#include "platform/io/uring_queue.h"

namespace ff::io {
namespace {

// Enough to saturate an NVMe drive with large transfers; more threads only cost stacks and context
// switches.
constexpr size_t kMaxThreads = 8;

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(QueueOptions options) : depth_(options.depth), loop_(options.loop) {}
  ~ThreadQueue() override;

  void read(File& file, ByteSpan into, uint64_t offset, Done done) override;
  void write(File& file, ByteView from, uint64_t offset, Done done) override;
  void sync(File& file, Done done) override;
  void run() override { deliver(true); }
  void poll() override { deliver(false); }
  size_t in_flight() const override { return in_flight_; }
  size_t depth() const override { return depth_; }
  void register_buffers(std::span<const ByteSpan>) override {}

 private:
  struct Op {
    std::function<Result<size_t>()> work;
    Done done;
    std::optional<Result<size_t>> result;  // once finished
  };

  void start(std::function<Result<size_t>()> work, Done done);
  void add_worker();
  void work();
  void deliver(bool wait);
  void post_delivery();

  const size_t depth_;
  Loop* const loop_;  // may be null
  // Set to null by the destructor; accessed by the owner's thread only.
  const std::shared_ptr<ThreadQueue*> self_ = std::make_shared<ThreadQueue*>(this);
  size_t in_flight_ = 0;              // owner's thread only
  std::vector<std::thread> workers_;  // owner's thread only

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_ready_;
  std::condition_variable result_ready_;
  std::deque<Op> waiting_;
  std::vector<Op> finished_;
  size_t idle_ = 0;
  bool closing_ = false;
};

ThreadQueue::~ThreadQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  *self_ = nullptr;
}

void ThreadQueue::read(File& file, ByteSpan into, uint64_t offset, Done done) {
  check_direct(file, into, offset);
  start([&file, into, offset] { return file.read_at(into, offset); }, std::move(done));
}

void ThreadQueue::write(File& file, ByteView from, uint64_t offset, Done done) {
  check_direct(file, from, offset);
  start(
      [&file, from, offset]() -> Result<size_t> {
        FF_TRY(file.write_at(from, offset));
        return from.size();
      },
      std::move(done));
}

void ThreadQueue::sync(File& file, Done done) {
  start(
      [&file]() -> Result<size_t> {
        FF_TRY(file.sync());
        return size_t{0};
      },
      std::move(done));
}

void ThreadQueue::start(std::function<Result<size_t>()> work, Done done) {
  FF_CHECK(in_flight_ < depth_);
  ++in_flight_;
  bool short_of_workers = false;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(work), std::move(done), std::nullopt});
    short_of_workers = idle_ < waiting_.size() && workers_.size() < std::min(depth_, kMaxThreads);
  }
  if (short_of_workers) add_worker();
  work_ready_.notify_one();
}

void ThreadQueue::add_worker() {
  try {
    workers_.emplace_back([this] { this->work(); });
  } catch (const std::system_error&) {
    FF_CHECK(!workers_.empty());  // at the thread limit: continue with the existing workers
  }
}

void ThreadQueue::work() {
  unpin_thread();
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    work_ready_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    --idle_;
    if (waiting_.empty()) return;  // closing, and no operation is left
    Op op = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    op.result = op.work();
    lock.lock();
    const bool first = finished_.empty();
    finished_.push_back(std::move(op));
    result_ready_.notify_one();
    if (loop_ == nullptr || !first) continue;
    lock.unlock();
    post_delivery();
    lock.lock();
  }
}

void ThreadQueue::post_delivery() {
  loop_->post([self = self_] {
    if (*self != nullptr) (*self)->deliver(false);
  });
}

void ThreadQueue::deliver(bool wait) {
  std::vector<Op> taken;
  {
    std::unique_lock lock(mutex_);
    if (wait && in_flight_ > 0) {
      result_ready_.wait(lock, [this] { return !finished_.empty(); });
    }
    taken.swap(finished_);
  }
  for (Op& op : taken) {
    --in_flight_;
    if (op.done) op.done(std::move(*op.result));
  }
}

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(QueueOptions options) {
  FF_CHECK(options.depth > 0);
  return std::make_unique<ThreadQueue>(options);
}

std::unique_ptr<IoQueue> make_system_queue(QueueOptions options) {
  if (auto queue = make_uring_queue(options)) return queue;
  return make_thread_queue(options);
}

}  // namespace ff::io

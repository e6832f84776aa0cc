// async.cc: one operation of one task as an awaitable, which no cancellation reaches.
#include "io/async.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/gate.h"

namespace ff::io {

// A class of its own and no Wait: that ends when its task is cancelled.
class AsyncQueue::Operation : private Ready {
 public:
  explicit Operation(AsyncQueue& queue) : queue_(queue) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  // The memory of the operation goes when this goes.
  ~Operation() {
    while (begun_ && !result_) queue_.queue_->run();
  }

  // Done for the queue; the task goes on from the loop.
  IoQueue::Done begin() {
    begun_ = true;
    return [this](Result<size_t> result) {
      result_.emplace(std::move(result));
      queue_.loop_.wake(*this);
    };
  }

  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> task) { task_ = task; }
  Result<size_t> await_resume() { return std::move(*result_); }

 private:
  void fire() override { task_.resume(); }

  AsyncQueue& queue_;
  bool begun_ = false;
  std::optional<Result<size_t>> result_;
  std::coroutine_handle<> task_;
};

AsyncQueue::AsyncQueue(Disk& disk, Loop& loop, unsigned depth)
    : AsyncQueue(disk.make_queue({.depth = depth, .loop = &loop}), loop) {}

AsyncQueue::AsyncQueue(std::unique_ptr<IoQueue> queue, Loop& loop)
    : loop_(loop), queue_(std::move(queue)), places_(loop, queue_->depth()) {}

AsyncQueue::~AsyncQueue() { FF_CHECK(queue_->in_flight() == 0 && places_.waiting() == 0); }

Task<Result<size_t>> AsyncQueue::read(File& file, ByteSpan into, uint64_t offset) {
  FF_CO_TRY(const auto hold, co_await place());
  Operation operation(*this);
  queue_->read(file, into, offset, operation.begin());
  co_return co_await operation;
}

Task<Result<void>> AsyncQueue::write(File& file, ByteView from, uint64_t offset) {
  FF_CO_TRY(const auto hold, co_await place());
  Operation operation(*this);
  queue_->write(file, from, offset, operation.begin());
  FF_CO_TRY(co_await operation);
  co_return Result<void>();
}

Task<Result<void>> AsyncQueue::sync(File& file) {
  FF_CO_TRY(const auto hold, co_await place());
  Operation operation(*this);
  queue_->sync(file, operation.begin());
  FF_CO_TRY(co_await operation);
  co_return Result<void>();
}

// Nothing begins for a task that is cancelled already.
Task<Result<Semaphore::Hold>> AsyncQueue::place() {
  const Cancel* const cancel = co_await current_cancel();
  if (cancel != nullptr && cancel->requested()) co_return cancel->reason();
  if (auto hold = places_.try_take(1)) co_return std::move(*hold);
  co_return co_await places_.take(1);
}

}  // namespace ff::io
